"""A beam search that follows golden keeps golden's beams, each behind the row it went on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from generating import NEW, captured, generate, model
from transformers import T5Config, T5ForConditionalGeneration

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.cli.main import ait
from ait_llm.dump.pytorch.beams import BeamNotes
from ait_llm.dump.pytorch.notes import Notes

GOLDEN, MINE = 1, 5  # seeds of two models that have nothing in common
WIDTH = 3
BATCH = torch.tensor([[0, 13, 35, 11], [11, 23, 5, 42]])


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    [ledger] = folder.rglob("ledger/*.jsonl")
    found = map(json.loads, ledger.read_text().splitlines())
    return [line for line in found if line["kind"] == kind]


def kept(folder: Path) -> list[object]:
    """Which beams a search began with and went on with, step by step."""
    return [line.get("kept", line.get("prompts")) for line in lines(folder, "beams")]


def read(folder: Path) -> list[list[list[int]]]:
    """The ids that the passes read."""
    files = sorted(
        folder.rglob("torch_tensors/*/*/root.model.embed_tokens/input_0.pth"),
        key=lambda file: int(file.parts[-3]),
    )
    return [torch.load(file, weights_only=True).tolist() for file in files]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_sample": True, "temperature": 0.7},
        {"cache_implementation": "static"},
        {"early_stopping": True, "length_penalty": 0.5},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"num_beams": 7, "num_return_sequences": 4},
    ],
    ids=["plain", "sampled", "static", "early", "penalised", "wide"],
)
def test_all_passes_read_the_rows_of_golden(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings = {"num_beams": WIDTH, **settings}
    torch.manual_seed(3)
    golden = captured(model(GOLDEN), tmp_path / "golden", BATCH, **settings)
    own = captured(model(MINE), tmp_path / "own", BATCH, **settings)
    mine = captured(model(MINE), tmp_path / "mine", BATCH, follow=golden, **settings)
    assert kept(own) != kept(golden)
    assert kept(mine) == kept(golden)
    assert read(mine) == read(golden)
    assert len(read(golden)) == NEW


def test_a_search_that_follows_itself_makes_every_value_again(tmp_path: Path) -> None:
    golden = captured(model(GOLDEN), tmp_path / "golden", BATCH, num_beams=WIDTH)
    mine = captured(model(GOLDEN), tmp_path / "mine", BATCH, follow=golden, num_beams=WIDTH)
    report = compare(golden, mine, jobs=1)
    assert report.exit_code() == 0
    distances = {each.values.get("max_absolute_error", 0.0) for each in report.comparisons}
    assert distances == {0.0}
    [note] = [each.text for each in report.problems if "followed" in each.text]
    assert note.endswith("its own choices would have been the same")


def test_a_capture_changes_nothing_of_a_search(tmp_path: Path) -> None:
    told = generate(model(GOLDEN), BATCH, num_beams=WIDTH)
    made = model(GOLDEN)
    with register_hook(made, DumpConfig(str(tmp_path))):
        assert torch.equal(generate(made, BATCH, num_beams=WIDTH), told)
    assert torch.equal(generate(made, BATCH, num_beams=WIDTH), told)
    assert len(lines(tmp_path, "beams")) == NEW  # none of the search behind the capture


@pytest.mark.parametrize(("early_stopping", "penalty"), [(True, 1.0), (False, 0.0), ("never", 0.0)])
def test_a_search_that_golden_ended_ends_there(
    tmp_path: Path, early_stopping: bool | str, penalty: float
) -> None:
    settings: dict[str, Any] = {"num_beams": WIDTH, "early_stopping": early_stopping}
    settings |= {"length_penalty": penalty}
    settings |= {"max_new_tokens": 16, "eos_token_id": [*range(70, 80)]}
    golden = captured(model(GOLDEN), tmp_path / "golden", **settings)
    mine = captured(model(MINE), tmp_path / "mine", follow=golden, **settings)
    assert 2 < len(read(golden)) < 16
    assert read(mine) == read(golden)


def test_where_the_search_would_have_kept_others_is_told(tmp_path: Path) -> None:
    golden = captured(model(GOLDEN), tmp_path / "golden", num_beams=WIDTH)
    mine = captured(model(MINE), tmp_path / "mine", follow=golden, num_beams=WIDTH)
    begun, *others = lines(mine, "follow")
    assert (begun["state"], begun["requests"], begun["tokens"]) == ("begun", 1, NEW - 1)
    assert {line["state"] for line in others} == {"differs"}
    assert all(line["margin"] > 0 for line in others)
    report = compare(golden, mine, jobs=1)
    [note] = [each.text for each in report.problems if "followed" in each.text]
    assert "its own choice would have been" in note


@pytest.mark.parametrize(
    ("golden", "mine", "reason"),
    [
        ({}, {"num_beams": 2}, "golden's dump has no beam search"),
        ({"num_beams": 2}, {"num_beams": 3}, "golden's dump has 1 beam search, and none with 3"),
        ({"num_beams": 2}, {}, "golden's dump holds beam searches only"),
    ],
)
def test_another_search_is_refused(
    tmp_path: Path, golden: dict[str, Any], mine: dict[str, Any], reason: str
) -> None:
    gold = captured(model(GOLDEN), tmp_path / "golden", **golden)
    made = model(MINE)
    config = DumpConfig(str(tmp_path / "mine"), token_range=range(99), follow=gold)
    with register_hook(made, config):
        found = generate(made, **mine)
    assert torch.equal(found, generate(model(MINE), **mine))
    [line] = lines(tmp_path / "mine", "follow")
    assert line["state"] == "refused"
    assert reason in line["reason"]


def test_an_encoder_s_search_follows(tmp_path: Path) -> None:
    def made(seed: int) -> T5ForConditionalGeneration:
        torch.manual_seed(seed)
        config = T5Config(
            vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4,
            decoder_start_token_id=0,
        )  # fmt: skip
        return T5ForConditionalGeneration(config).eval()

    def run(seed: int, folder: Path, follow: Path | None = None) -> Path:
        one = made(seed)
        config = DumpConfig(str(folder), token_range=range(99), follow=follow)
        with torch.no_grad(), register_hook(one, config):
            one.generate(BATCH, max_new_tokens=NEW, num_beams=WIDTH, do_sample=False)
        return folder / "ait_dump"

    golden = run(GOLDEN, tmp_path / "golden")
    assert kept(run(MINE, tmp_path / "mine", golden)) == kept(golden)


def test_a_damaged_line_about_beams_ends_the_command_with_a_sentence(tmp_path: Path) -> None:
    golden = captured(model(GOLDEN), tmp_path / "golden", num_beams=WIDTH)
    [ledger] = golden.rglob("ledger/*.jsonl")
    text = ledger.read_text()
    first = lines(golden, "beams")[1]["kept"]
    ledger.write_text(text.replace(json.dumps(first).replace(" ", ""), "[[0,1],[7,2],[1,3]]"))
    assert ledger.read_text() != text
    words = ["dump", "--exec", "python x.py", "--type", "torch", "-o", str(tmp_path / "mine")]
    result = CliRunner().invoke(ait, ["llm", *words, "--follow", str(golden)])
    assert result.exit_code == 2
    assert "a line about beams is damaged (a step is not of 3 rows)" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "rows",
    [
        [[[1, 2]] * 4],  # no whole number of prompts
        [[[1, 2]] * 3, [[1, 2, 3]] * 6],  # other rows than before
        [[[1, 2]] * 3, [[1, 2]] * 3],  # groups, one after the other
    ],
)
def test_a_search_of_another_kind_is_left_alone(rows: list[list[list[int]]]) -> None:
    told: list[object] = []
    notes = Notes()
    notes.attach(lambda kind, facts: told.append(facts.get("kept")))
    watch = BeamNotes(notes, lambda: 0, WIDTH)
    for each in rows:
        scores = torch.zeros(len(each), 9)
        assert watch(torch.tensor(each), scores) is scores
    assert told == [None] * (len(rows) - 1)


def test_a_second_capture_of_a_process_is_noted_again() -> None:
    told: list[str] = []
    notes = Notes()
    for name in ("first", "second"):
        notes.attach(lambda kind, facts, name=name: told.append(f"{name} {kind}"))
        notes.tell("beams", {})
        notes.end()
        notes.tell("beams", {})
    assert told == ["first beams", "second beams"]
