"""Where tokens part in dumps of the acceleration library, the graph engine and FX nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from choosing_runs import atb, fx, ge, values
from click.testing import CliRunner

from ait_llm.cli.main import ait

Write = Callable[[Path, Sequence[Sequence[int]]], Path]
KINDS = pytest.mark.parametrize("write", [atb, fx, ge], ids=["atb", "fx", "ge"])
STEPS = 5


def greedy(first: Sequence[int]) -> list[list[int]]:
    """What the program reads, step by step, if it takes its largest logits."""
    read = [list(first)]
    while len(read) < STEPS:
        read.append([int(row.argmax()) for row in values(read[-1])[1]])
    return read


def compared(tmp_path: Path, write: Write, mine: Sequence[Sequence[int]]) -> dict[str, object]:
    """Result of the command, whose golden side is greedy; with its exit code."""
    golden, other = write(tmp_path / "golden", greedy([1, 6])), write(tmp_path / "mine", mine)
    words = ["compare", "-gp", str(golden), "-mp", str(other), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(ait, ["llm", *words, "--json"])
    assert result.exit_code in (0, 3), result.output
    return json.loads(result.stdout.splitlines()[-1]) | {"exit_code": result.exit_code}


@KINDS
def test_a_comparison_ends_where_all_tokens_part(tmp_path: Path, write: Write) -> None:
    mine = greedy([1, 6])
    mine[2:] = [[(token + 1) % 8 for token in ids] for ids in mine[2:]]
    told = compared(tmp_path, write, mine)
    assert told["counts"]["FAIL"] == 0
    assert told["exit_code"] == 3  # mine did not take its largest logits
    texts = [text for text in told["problems"] if "golden chose" in text]
    assert len(texts) == 2
    golden = greedy([1, 6])[2]
    logits = values(greedy([1, 6])[1])[1]
    margin = logits[0, golden[0]] - logits[0, mine[2][0]]
    start = f"step 1: golden chose token {golden[0]} (margin {margin:.3g} over {mine[2][0]})"
    assert texts[0].startswith(start)
    assert "steps 2 to 4 read other tokens and were not compared" in texts[0]


@KINDS
def test_other_requests_of_a_batch_go_on(tmp_path: Path, write: Write) -> None:
    mine = greedy([1, 6])
    for place in range(2, STEPS):
        mine[place][1] = (mine[place][1] + 1) % 8
    told = compared(tmp_path, write, mine)
    assert told["counts"]["FAIL"] == 0
    [text] = [text for text in told["problems"] if "golden chose" in text]
    assert text.startswith("step 1: request 1: golden chose token")
    assert "it reads other tokens in steps 2 to 4, and is not compared there" in text
    assert (told["not_comparable"], told["counts"]["SKIPPED"]) == (0, 0)


@KINDS
def test_a_wrong_value_of_a_request_that_goes_on_still_fails(tmp_path: Path, write: Write) -> None:
    mine = greedy([1, 6])
    for place in range(2, STEPS):
        mine[place][1] = (mine[place][1] + 1) % 8
    golden, other = write(tmp_path / "golden", greedy([1, 6])), write(tmp_path / "mine", mine)
    _, logits = values(mine[4])
    for request, code in ((1, 3), (0, 1)):
        wrong = logits.copy()
        wrong[request] += 1
        _overwrite(other, wrong)
        words = ["compare", "-gp", str(golden), "-mp", str(other), "-o", str(tmp_path / "out")]
        result = CliRunner().invoke(ait, ["llm", *words, "--json"])
        assert result.exit_code == code, (request, result.output)


def _overwrite(root: Path, logits: np.ndarray) -> None:
    """Replace the logits of the last step."""
    for file in root.rglob("4/*mm-aten*OUTPUT*.npy"):
        np.save(file, logits)
        return
    for file in (*root.rglob("4/1_Linear*/after/outtensor0.bin"), *root.rglob("4/MatMul*")):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) - logits.nbytes] + logits.tobytes())
        return
    raise AssertionError("no logits")
