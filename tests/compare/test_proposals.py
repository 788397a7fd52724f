"""Runs that make sure of proposed tokens, several in one pass, against runs that do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from generating import SPARE, captured, generate, model
from transformers import LlamaForCausalLM

from ait_llm import compare, open_dump
from ait_llm.core.comparison import Report, Verdict
from ait_llm.dump.golden.run import GoldenSettings, plan_golden, run_golden
from ait_llm.dump.golden_run import read_golden_tokens
from ait_llm.program.passes import passes_of
from ait_llm.program.proposals import needs_places
from ait_llm.program.readings import readings

PROMPT = torch.tensor([[27, 25, 14, 77, 21, 20, 11, 89, 24, 51, 62, 7, 46]])
PROPOSED = {"prompt_lookup_num_tokens": 3}

PARTED = 3
"""Step at which :func:`tied` chooses otherwise."""

_SETTINGS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "pad_token_id",
    "eos_token_id",
)

PROGRAM = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

def made(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**{config})).eval()

model, assistant = made(1), made(1)
assistant.model.layers[1].mlp.down_proj.weight.data *= 3
ids = torch.tensor({prompt})
with torch.no_grad():
    new = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False,
        assistant_model=assistant,
    )
print(new[0, {length}:].tolist())
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(model(), tmp_path_factory.mktemp("plain"), PROMPT)


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(model(), tmp_path_factory.mktemp("proposed"), PROMPT, **PROPOSED)


def tied() -> LlamaForCausalLM:
    """The model, with a token that it likes a little more than the one it chooses at a step."""
    made = model()
    token = generate(made, PROMPT)[0, PARTED]
    with torch.no_grad():
        made.lm_head.weight[SPARE] = made.lm_head.weight[token] * 1.001
    return made


def _read(dump: Path) -> list[int]:
    """How many tokens each pass reads."""
    opened = open_dump(dump)
    return [
        each.ids.ids.size
        for each in readings(passes_of(opened, opened.processes[0]))
        if each.ids is not None
    ]


def _is_healthy(report: Report) -> bool:
    return report.verdict is Verdict.PASS and report.exit_code() == 0 and not report.origins


def test_the_programs_read_other_numbers_of_tokens(plain: Path, proposed: Path) -> None:
    assert _read(plain) == [13, 1, 1, 1, 1, 1]
    assert _read(proposed) == [13, 4, 4, 1]


def test_runs_with_and_without_proposals_agree(plain: Path, proposed: Path) -> None:
    for golden, mine in ((plain, proposed), (proposed, plain)):
        report = compare(golden, mine, jobs=1)
        assert _is_healthy(report), report.origins
        logits = [
            each
            for each in report.comparisons
            if each.mine is not None and each.mine.op == "root" and each.mine.role == "out"
        ]
        assert any(each.verdict is Verdict.PASS for each in logits)


def test_a_wrong_weight_of_a_run_with_proposals_is_found(plain: Path, tmp_path: Path) -> None:
    made = model()
    with torch.no_grad():
        made.model.layers[1].mlp.down_proj.weight *= 1.02
    report = compare(plain, captured(made, tmp_path, PROMPT, **PROPOSED), jobs=1)
    assert report.verdict is Verdict.FAIL
    assert report.origins[0].op == "root.model.layers.1.mlp.down_proj"


def test_tokens_that_were_proposed_and_taken_are_those_of_golden(
    plain: Path, proposed: Path
) -> None:
    one, other = (read_golden_tokens(each).of_rank(0)[0] for each in (plain, proposed))
    assert other.prompt == one.prompt == tuple(PROMPT[0].tolist())
    assert list(one.chosen) == generate(model(), PROMPT)[0].tolist()
    assert other.chosen == one.chosen[: len(other.chosen)]
    assert len(other.chosen) >= len(one.chosen) - 1


def test_a_run_with_proposals_follows_one_with_and_one_without(
    plain: Path, proposed: Path, tmp_path: Path
) -> None:
    wanted = generate(model(), PROMPT)[0].tolist()
    for golden in (plain, proposed):
        folder = tmp_path / golden.parent.name
        followed = captured(tied(), folder, PROMPT, **PROPOSED, follow=golden)
        [request] = read_golden_tokens(followed).of_rank(0)
        assert list(request.chosen) == wanted[: len(request.chosen)]
        [process] = open_dump(followed).processes
        assert process.ledger is not None
        told = [each for each in process.ledger.follow if each["state"] == "differs"]
        assert {(each["own"], each["taken"]) for each in told} == {(SPARE, wanted[PARTED])}


def test_another_choice_of_a_run_with_proposals_is_a_parting(plain: Path, tmp_path: Path) -> None:
    mine = captured(tied(), tmp_path, PROMPT, **PROPOSED)
    tokens = read_golden_tokens(mine).of_rank(0)[0].chosen
    assert tokens[PARTED] == SPARE
    report = compare(plain, mine, jobs=1)
    told = " ".join(problem.text for problem in report.problems)
    assert "golden chose token 51 (margin" in told
    assert f", mine {SPARE};" in told


def test_an_assistant_model_is_left_out_and_its_proposals_are_no_choices(
    proposed: Path, tmp_path: Path
) -> None:
    config = {name: getattr(model().config, name) for name in _SETTINGS}
    program = tmp_path / "program.py"
    program.write_text(
        PROGRAM.format(config=config, prompt=PROMPT.tolist(), length=PROMPT.shape[1])
    )
    command = [sys.executable, "-m", "ait_llm", "llm", "dump", "--type", "torch", "-er", "all"]
    command += ["--exec", f"{sys.executable} {program}", "--follow", str(proposed)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "mine"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    said, *_, told = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(said) == generate(model(), PROMPT)[0].tolist()
    [note] = [text for text in json.loads(told)["notes"] if "followed" in text]
    assert "would have been the same" in note
    report = compare(proposed, tmp_path / "mine", jobs=1)
    assert _is_healthy(report), report.origins
    assert any("root1 is an assistant model" in problem.text for problem in report.problems)
    assert not any(
        each.mine is not None and each.mine.op.startswith("root1") for each in report.comparisons
    )


def test_a_golden_run_is_made_like_one_with_proposals(proposed: Path, tmp_path: Path) -> None:
    model().save_pretrained(tmp_path / "checkpoint")
    settings = GoldenSettings(tmp_path / "checkpoint", proposed, tmp_path / "golden")
    assert run_golden(plan_golden(settings)).complete
    report = compare(tmp_path / "golden", proposed, jobs=1)
    assert _is_healthy(report), report.origins
    assert not [problem for problem in report.problems if problem.decides]
    passed = (each.mine for each in report.comparisons if each.verdict is Verdict.PASS)
    assert {each.step for each in passed if each is not None} == {0, 1, 2, 3}


def test_a_prompt_alone_has_no_proposals(plain: Path) -> None:
    opened = open_dump(plain)
    assert not needs_places(readings(passes_of(opened, opened.processes[0])))
