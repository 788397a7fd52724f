"""Dumps without values: what statistics and checksums of parts can tell."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_dumps import call, scalar, tensor, write_dump
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait
from ait_llm.formats.elements import Array

RNG = np.random.default_rng(3)
WHOLE = RNG.standard_normal((8, 6))
LINEAR = "Functional.linear.0.forward"


def dumped(tmp_path: Path, parts: list[Array], make: Callable[..., Any] = tensor) -> Any:
    """The result of comparing the parts with the whole, and the command's own."""
    golden = write_dump(tmp_path / "golden", {LINEAR: call([], [make(WHOLE)])})
    for rank, part in enumerate(parts):
        write_dump(tmp_path / "mine", {LINEAR: call([], [make(part)])}, rank=rank)
    words = ("-gp", golden, "-mp", tmp_path / "mine" / "step0", "-o", tmp_path / "out")
    result = run(*words, "--json")
    return json.loads(result.stdout)["steps"][0], result


def run(*words: object) -> Result:
    return CliRunner().invoke(ait, ["llm", "compare", *map(str, words)])


@pytest.mark.parametrize(
    ("layout", "parts"),
    [
        ("replicate", [WHOLE] * 4),
        ("shard 0", np.split(WHOLE, 4, 0)),
        ("shard 1", np.array_split(WHOLE, 4, 1)),
        ("shard 0 groups 2", np.split(WHOLE, 2, 0) * 2),
    ],
)
def test_statistics_confirm_parts_side_by_side(
    tmp_path: Path, layout: str, parts: list[Array]
) -> None:
    step, result = dumped(tmp_path, parts)
    assert step["layouts"] == {layout: 1}
    assert result.exit_code == 0


def test_a_part_with_too_large_a_value_is_named(tmp_path: Path) -> None:
    parts = np.split(WHOLE.copy(), 4, 0)
    parts[2][0, 0] = 50.0
    step, result = dumped(tmp_path, parts)
    assert step["suspect"]["ranks"] == [2]
    assert result.exit_code == 1


def test_parts_of_a_sum_are_not_compared_and_not_passed(tmp_path: Path) -> None:
    step, result = dumped(tmp_path, [WHOLE * 0.25] * 4)
    assert step["counts"] == {"SKIPPED": 1}
    assert "statistics do not tell how its parts add up" in result.stderr
    assert result.exit_code == 3


def test_checksums_tell_copies_only(tmp_path: Path) -> None:
    def checked(values: Array) -> dict[str, Any]:
        return tensor(values, md5=f"{zlib.crc32(np.ascontiguousarray(values).tobytes()):08x}")

    step, _ = dumped(tmp_path / "same", [WHOLE, WHOLE, WHOLE + 1, WHOLE], checked)
    assert step["suspect"]["ranks"] == [2]
    step, result = dumped(tmp_path / "cut", np.split(WHOLE, 4, 0), checked)
    assert step["counts"] == {"SKIPPED": 1}
    assert result.exit_code == 3


def test_sizes_may_be_cut_and_other_scalars_may_not(tmp_path: Path) -> None:
    def calls(size: int, other: float) -> dict[str, Any]:
        inputs = [tensor(WHOLE), scalar(size), scalar(other)]
        return {"Tensor.reshape.0.forward": call(inputs, [tensor(WHOLE)])}

    golden = write_dump(tmp_path / "golden", calls(8, 0.5))
    for rank in range(4):
        write_dump(tmp_path / "mine", calls(2, 0.5 if rank else 0.25), rank=rank)
    words = ("-gp", golden, "-mp", tmp_path / "mine", "-o", tmp_path / "out", "--json")
    (step,) = json.loads(run(*words).stdout)["steps"]
    assert step["layouts"] == {"replicate": 2, "shard of a size": 1}
    assert list(step["not_compared"]) == ["layout unknown: scalars that differ between ranks"]


def test_a_rank_without_the_tensor_is_named(tmp_path: Path) -> None:
    golden = write_dump(tmp_path / "golden", {LINEAR: call([], [tensor(WHOLE)])})
    for rank in range(2):
        records = {LINEAR: call([], [tensor(WHOLE)] if rank else [None])}
        write_dump(tmp_path / "mine", records if rank else {}, rank=rank)
    words = ("-gp", golden, "-mp", tmp_path / "mine", "-o", tmp_path / "out")
    result = run(*words)
    assert "rank 0 of mine does not have it" in result.output
    assert result.exit_code == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "holds no lines"),
        ("a: 3", "'a' has no layout"),
        ("a: split 0", "'split 0' is no layout"),
        ("a: [", "is not yaml"),
    ],
)
def test_a_wrong_file_of_layouts_is_one_sentence_and_2(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(text, encoding="utf-8")
    golden = write_dump(tmp_path / "golden", {LINEAR: call([], [tensor(WHOLE)])})
    result = run("-gp", golden, "-mp", golden, "-o", tmp_path / "out", "--layout", path)
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert message in result.output


def test_fuzzy_names_and_mappings_need_one_rank_each(tmp_path: Path) -> None:
    golden = write_dump(tmp_path / "golden", {LINEAR: call([], [tensor(WHOLE)])})
    for rank in range(2):
        write_dump(tmp_path / "mine", {LINEAR: call([], [tensor(WHOLE)])}, rank=rank)
    result = run("-gp", golden, "-mp", tmp_path / "mine", "-o", tmp_path / "out", "-f")
    assert result.exit_code == 2
    assert "leave out -f and -dm" in result.output
