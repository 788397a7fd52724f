"""Runs that chose different tokens are compared up to there, and say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from generating import NEW, PROMPT, SPARE, captured, generate, model, nearly_tied

from ait_llm import compare
from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict

STEP = 3
TOKEN = int(generate(model())[0, STEP])
OTHER = torch.tensor([[5, 13, 35, 11]])


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is a hair before choosing the spare token."""
    return captured(nearly_tied(STEP, -1e-6), tmp_path_factory.mktemp("golden"))


def test_a_parting_by_rounding_is_said_and_fails_nothing(golden: Path, tmp_path: Path) -> None:
    mine = captured(nearly_tied(STEP, 1e-6), tmp_path)
    report = compare(golden, mine)
    assert report.verdict is Verdict.PASS
    assert {item.record.step for item in report.comparisons} == set(range(STEP + 1))
    [problem] = report.problems
    assert not problem.decides
    text = problem.text
    assert text.startswith(f"step {STEP}: golden chose token {TOKEN} (margin ")
    assert f"over {SPARE}), mine {SPARE} (margin " in text
    assert f"over {TOKEN}); steps {STEP + 1} to {NEW - 1} read other tokens" in text
    margins = [float(part.split()[0]) for part in text.split("(margin ")[1:]]
    assert all(0 <= margin < 1e-4 for margin in margins)


def test_command_ends_with_0_and_says_which_token(golden: Path, tmp_path: Path) -> None:
    mine = captured(nearly_tied(STEP, 1e-6), tmp_path / "mine")
    words = ["compare", "-gp", str(golden), "-mp", str(mine), "-o", str(tmp_path), "--json"]
    result = CliRunner().invoke(ait, ["llm", *words])
    assert result.exit_code == 0
    [said] = json.loads(result.stdout.splitlines()[-1])["problems"]
    assert f"golden chose token {TOKEN}" in said


def test_origin_is_looked_for_only_before(golden: Path, tmp_path: Path) -> None:
    made = nearly_tied(STEP, 1e-6)
    with torch.no_grad():
        made.model.layers[1].mlp.down_proj.weight *= 1.01
    report = compare(golden, captured(made, tmp_path))
    assert report.verdict is Verdict.FAIL
    assert [item.op for item in report.origins][:1] == ["root.model.layers.1.mlp.down_proj"]
    assert all(item.record.step <= STEP for item in report.comparisons)


def test_a_choice_against_its_own_logits_leaves_the_comparison_incomplete(
    golden: Path, tmp_path: Path
) -> None:
    mine = captured(nearly_tied(STEP, -1e-6), tmp_path, suppress_tokens=[TOKEN, SPARE])
    report = compare(golden, mine)
    assert report.exit_code() == 3
    [problem] = [each for each in report.problems if each.decides]
    assert f"(though its logits prefer {TOKEN})" in problem.text
    assert "Mine did not choose by its logits" in problem.text


def test_a_generation_that_ends_early_leaves_the_next_one_comparable(tmp_path: Path) -> None:
    # mine chooses the spare token, which ends its first generation three steps early
    ends = {"eos_token_id": SPARE}
    one = captured(nearly_tied(STEP, -1e-6), tmp_path / "golden", PROMPT, OTHER, **ends)
    two = captured(nearly_tied(STEP, 1e-6), tmp_path / "mine", PROMPT, OTHER, **ends)
    report = compare(one, two)
    assert report.exit_code() == 0, report.problems
    pairs = {(item.golden.step, item.mine.step) for item in report.comparisons if item.golden}
    behind = {(NEW + step, STEP + 1 + step) for step in range(NEW)}
    assert pairs == {(step, step) for step in range(STEP + 1)} | behind
    text = report.problems[0].text
    assert f"mine {SPARE} (margin" in text
    assert f"mine ended there, and steps {STEP + 1} to {NEW - 1} of the other were not" in text


def test_each_request_of_a_batch_is_followed_by_its_prompt(tmp_path: Path) -> None:
    batch = torch.cat([OTHER, PROMPT])
    one = captured(nearly_tied(STEP, -1e-6), tmp_path / "golden", batch)
    two = captured(nearly_tied(STEP, 1e-6), tmp_path / "mine", batch.flip(0))
    [problem] = [each for each in compare(one, two).problems if "golden chose" in each.text]
    assert f"request 1 of golden: golden chose token {TOKEN}" in problem.text


def test_a_run_without_a_cache_parts_at_the_same_step(golden: Path, tmp_path: Path) -> None:
    mine = captured(nearly_tied(STEP, 1e-6), tmp_path, use_cache=False)
    [problem] = [each for each in compare(golden, mine).problems if "golden chose" in each.text]
    assert problem.text.startswith(f"step {STEP}: golden chose token {TOKEN}")


def _batch(folder: Path, lead: float, wrong: tuple[int, int] | None = None) -> Path:
    """A captured batch of which request 1 is nearly tied; what ``wrong`` names is off at the end.

    Args:
        folder: of the capture.
        lead: of the spare token.
        wrong: request whose last hidden state is wrong, and in which step.
    """
    made = nearly_tied(STEP, lead)
    calls = iter(range(99))

    def spoil(_: object, __: object, output: torch.Tensor) -> torch.Tensor:
        if wrong is not None and next(calls) == wrong[1]:
            output = output.clone()
            output[wrong[0]] *= 1.5
        return output

    made.model.layers[1].mlp.down_proj.register_forward_hook(spoil)
    return captured(made, folder, torch.cat([OTHER, PROMPT]))


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _batch(tmp_path_factory.mktemp("batch"), -1e-6)


def test_only_the_request_that_parts_is_left_out(batch: Path, tmp_path: Path) -> None:
    report = compare(batch, _batch(tmp_path, 1e-6))
    assert report.exit_code() == 0, report.problems
    [text] = [each.text for each in report.problems if "golden chose" in each.text]
    assert text.startswith(f"step {STEP}: request 1: golden chose token {TOKEN} (margin ")
    assert f"it reads other tokens in steps {STEP + 1} to {NEW - 1}, and is not" in text
    late = [item for item in report.comparisons if item.record.step > STEP]
    assert len([item for item in late if item.verdict is Verdict.PASS]) > len(late) * 0.7
    reasons = {item.reason for item in late if item.verdict is not Verdict.PASS}
    assert reasons <= {"request 1 read other tokens, and their rows are not known here"}


@pytest.mark.parametrize(("request_", "code"), [(0, 1), (1, 0)])
def test_a_wrong_value_of_a_request_that_goes_on_is_found(
    batch: Path, tmp_path: Path, request_: int, code: int
) -> None:
    report = compare(batch, _batch(tmp_path, 1e-6, wrong=(request_, STEP + 1)))
    assert report.exit_code() == code
    names = {origin.op for origin in report.origins}
    assert names == ({"root.model.layers.1.mlp.down_proj"} if code else set())
