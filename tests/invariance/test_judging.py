"""What a token that changes says, where all compared values agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from report_builder import comparison, report

from ait_llm.compare.parting import CHOSE
from ait_llm.core.comparison import Problem, Report
from ait_llm.invariance.heard import Heard
from ait_llm.invariance.judging import judged
from ait_llm.invariance.result import Answer, InvariantResult, Outcome

PROMPT = [5, 6, 7]


def agreeing(steps: int, *problems: Problem) -> Report:
    passes = tuple((step, step) for step in range(steps))
    return replace(report(comparison(0.0)), passes=passes, problems=problems, origins=())


def generated(*tokens: int) -> dict[int, Answer]:
    return {0: Answer([[*PROMPT, *tokens]], generated=True, prompt=len(PROMPT))}


def state(found: Report, before: dict[int, Answer], after: dict[int, Answer]) -> str:
    return judged("batch", found, before, after).state


def test_a_token_behind_the_steps_that_were_looked_at_accuses_nobody() -> None:
    before, after = generated(1, 2, 3, 4, 5, 6), generated(1, 2, 3, 4, 5, 9)
    outcome = judged("batch", agreeing(4), before, after)
    assert outcome.state == "undecided"
    assert "-er all" in outcome.reason


def test_the_last_token_that_logits_within_rounding_choose_accuses_nobody() -> None:
    assert state(agreeing(4), generated(1, 2, 3, 4), generated(1, 2, 3, 9)) == "held"


def test_a_token_that_the_runs_chose_otherwise_within_rounding_accuses_nobody() -> None:
    parting = Problem("both", f"step 1: golden {CHOSE} 2, mine 9", decides=False)
    assert state(agreeing(2, parting), generated(1, 2, 3, 4), generated(1, 9, 8, 7)) == "held"


def test_a_largest_logit_of_a_call_after_generating_accuses_nobody() -> None:
    before = {**generated(1, 2), 1: Answer([[4, 4]])}
    after = {**generated(1, 2), 1: Answer([[4, 5]])}
    assert state(agreeing(3), before, after) == "held"
    assert state(agreeing(2), before, after) == "undecided"


def test_an_answer_that_is_not_what_the_model_went_on_with_is_broken() -> None:
    assert state(agreeing(4), generated(1, 2, 3, 4), generated(1, 9, 3, 4)) == "broken"


def test_a_prompt_that_comes_back_changed_is_not_called_a_choice() -> None:
    before = generated(1, 2)
    after = {0: Answer([[5, 9, 7, 1, 2]], generated=True, prompt=3)}
    assert state(agreeing(2), before, after) != "held"


def test_an_interrupted_run_ends_with_130_whatever_it_found(tmp_path: Path) -> None:
    found = InvariantResult(tmp_path, (Outcome("batch", "broken"),), interrupted=True)
    assert found.code == 130
    assert replace(found, interrupted=False).code == 1


def test_reasons_are_told_once_each_and_never_not_at_all() -> None:
    heard = Heard()
    assert heard.why_not().startswith("the program calls no model of transformers")
    for reason in ("one", "two", "one"):
        heard.hear("unchanged", change="batch", reason=reason)
    assert heard.why_not() == "one; two"
