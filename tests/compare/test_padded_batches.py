"""Batches whose rows are padded: no request is left out because its mask or its tokens differ."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from matching_truth import families

from ait_llm import DumpConfig, register_hook
from ait_llm.compare import compare
from ait_llm.core.comparison import Report

Table = list[list[int]]
SHORT = [29, 41, 17, 60]
IDS = [[5, 11, 29, 41, 17, 60], [0, 0, *SHORT]]
MASK = [[1] * 6, [0, 0, 1, 1, 1, 1]]


def _asked(
    folder: Path, *, attention: str = "eager", operators: bool = False, **given: Table
) -> Path:
    model = families.make("llama", attention=attention).eval()
    arguments = {name: torch.tensor(value) for name, value in given.items()}
    config = DumpConfig(dump_path=folder, operators=operators, modules=not operators)
    with torch.no_grad(), register_hook(model, config):
        model(**arguments, use_cache=False)
    return folder


def _report(folder: Path, ids: Table, mask: Table) -> Report:
    golden = _asked(folder / "golden", input_ids=IDS, attention_mask=MASK)
    return compare(golden, _asked(folder / "mine", input_ids=ids, attention_mask=mask), jobs=1)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (
            [[1] * 6, [0, 1, 1, 1, 1, 0]],
            "position [1, 5] only in mine and position [1, 1] only in golden",
        ),
        ([[1, 1, 0, 1, 1, 1], MASK[1]], "position [0, 2] only in mine"),
        ([[1] * 6] * 2, "position [1, 0], position [1, 1] only in golden"),
    ],
)
def test_a_mask_that_hides_other_places_of_one_request_is_the_origin(
    mask: Table, words: str, tmp_path: Path
) -> None:
    report = _report(tmp_path, IDS, mask)
    (origin,) = report.origins
    assert origin.kind == "other input"
    assert origin.evidence == f"inputs differ already: `attention_mask` of `root` hides {words}"


def test_a_request_padded_on_the_other_side_is_still_compared_where_its_tokens_differ(
    tmp_path: Path,
) -> None:
    report = _report(tmp_path, [IDS[0], [29, 41, 19, 60, 0, 0]], [MASK[0], [1, 1, 1, 1, 0, 0]])
    (origin,) = report.origins
    assert origin.kind == "other input"
    assert origin.evidence == (
        "inputs differ already: intensor0 is not that of golden, [8, 0] is 19 instead of 17; both "
        "runs must get the same tokens"
    )


def test_positions_that_differ_are_called_positions(tmp_path: Path) -> None:
    given = {"input_ids": IDS, "attention_mask": MASK}
    golden = _asked(tmp_path / "golden", **given)
    places = [[1, 2, 3, 4, 5, 6]] * 2
    mine = _asked(tmp_path / "mine", **given, position_ids=places)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert (origin.op, origin.kind) == ("root.model.rotary_emb", "other input")
    assert origin.evidence == (
        "inputs differ already: intensor1 (position_ids) is not that of golden, [0, 0] is 1 "
        "instead of 0; both runs must get the same positions"
    )


def test_an_attention_that_is_given_no_mask_is_told_so(tmp_path: Path) -> None:
    golden = _asked(
        tmp_path / "golden", attention="sdpa", operators=True, input_ids=IDS, attention_mask=MASK
    )
    mine = _asked(tmp_path / "mine", attention="sdpa", operators=True, input_ids=IDS)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert "scaled_dot_product" in origin.op
    assert origin.evidence.endswith("; golden's is given `attn_mask`, and this one is not")
