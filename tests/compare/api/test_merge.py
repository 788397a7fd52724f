"""Communication of all ranks in one workbook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openpyxl
import pytest
from api_dumps import call, tensor, write_dump
from msprobe_samples import sample

from ait_llm.compare.api.merge import MergeSettings, merge_results, read_merge_settings
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.errors import AitError, FormatError, UsageError

GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "77849d8c"}
Cells = dict[str, list[tuple[Any, ...]]]


def tables_of(tmp_path: Path, golden: Path, mine: Path, suffix: str) -> Path:
    folder = tmp_path / f"tables-{suffix}"
    compare_api_dumps(mine, golden, folder, "20260102030405", ApiOptions(), formats=[suffix])
    return folder


def cells(path: Path) -> Cells:
    book = openpyxl.load_workbook(path)
    found = {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book}
    book.close()
    return found


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_the_workbook_is_that_of_the_real_tool_but_for_groups(tmp_path: Path, suffix: str) -> None:
    root = sample("dist_stat")
    folder = tables_of(tmp_path, root / "golden" / "step0", root / "target" / "step0", suffix)
    settings = read_merge_settings(root / "merge.yaml")
    ours = cells(merge_results(folder, tmp_path, settings, "1").path)
    (path,) = (root / "compare" / "merge_step0").glob("*.xlsx")
    theirs = cells(path)
    assert list(ours) == list(theirs)
    for sheet, rows in theirs.items():
        for our, their in zip(ours[sheet], rows, strict=True):
            if str(our[0]).endswith((".group", "all_reduce.1.forward.output.2")):
                assert our[1:] == ("[0, 1]", "[0, 1]")  # which ranks, instead of a difference of 0
            else:
                assert list(map(str, our)) == pytest.approx(list(map(str, their)))


def two_ranks(tmp_path: Path) -> Path:
    """Tables of two ranks, of which only the second has a second call."""
    for side, factor in (("golden", 1.0), ("mine", 2.0)):
        for rank in (0, 1):
            calls = range(rank + 1)
            records = {
                f"Distributed.all_reduce.{n}.forward": call([tensor([factor])], [None], group=GROUP)
                for n in calls
            }
            write_dump(tmp_path / side, records, rank=rank)
    return tables_of(tmp_path, tmp_path / "golden" / "step0", tmp_path / "mine" / "step0", "csv")


def test_a_call_that_a_rank_does_not_have_leaves_its_cell_empty(tmp_path: Path) -> None:
    settings = MergeSettings(("Distributed.all_reduce.1",), ("Max diff",))
    merged = merge_results(two_ranks(tmp_path), tmp_path, settings, "1")
    rows = cells(merged.path)["Max diff"]
    assert rows[0] == ("NPU Name", "rank0", "rank1")
    assert rows[1][1:] == (None, 1)


def test_a_beginning_of_a_name_ends_at_a_dot(tmp_path: Path) -> None:
    settings = MergeSettings(("Distributed.all",))
    merged = merge_results(two_ranks(tmp_path), tmp_path, settings, "1")
    assert (merged.rows, merged.problems) == (0, ("no rank has Distributed.all",))


def test_what_has_no_value_is_shown_by_the_maxima(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path)
    path = next(folder.glob("*rank0*"))
    text = path.read_text(encoding="utf-8").replace("1.0,1.0,1.0,1.0,100.0%", "N/A,1.0,1.0,1.0,1%")
    path.write_text(text, encoding="utf-8")
    settings = MergeSettings(("Distributed.all_reduce.0.forward.input.0",), ("Max diff",))
    rows = cells(merge_results(folder, tmp_path, settings, "1").path)["Max diff"]
    assert rows[1][1:] == ("NPU:2.0  Bench:1.0", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no api"),
        ("api: Distributed", "not a list"),
        ("api: [Distributed]\nindex: [x]", "unknown key 'index'"),
        ("api: [", "is not yaml"),
        ("api: 2026-13-01", "is not yaml: month must be in 1..12"),
        ("!!python/object/apply:os.system ['true']", "is not yaml"),
    ],
)
def test_a_wrong_configuration_is_refused_in_a_sentence(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        read_merge_settings(path)


def test_one_rank_is_nothing_to_merge(tmp_path: Path) -> None:
    folder = two_ranks(tmp_path)
    next(folder.glob("*rank1*.csv")).unlink()
    with pytest.raises(UsageError, match="at least two"):
        merge_results(folder, tmp_path, MergeSettings(("Distributed",)), "1")


def test_checksums_and_unknown_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AitError, match="'Cosine' is no column of these tables"):
        merge_results(
            two_ranks(tmp_path), tmp_path, MergeSettings(("Distributed",), ("Cosine",)), "1"
        )
