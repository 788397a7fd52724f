"""Shape inference against what the real library answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import golden_ops

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data/atb-trace/op-infershape.json").read_text()
)
KNOWN = [entry for entry in RECORDED if entry["op"] in golden_ops]


def _descs(raw: list[dict[str, Any]]) -> tuple[TensorDesc, ...]:
    return tuple(
        TensorDesc(DType.from_code(item["dtype"]), tuple(item["shape"]), item["format"])
        for item in raw
    )


def _label(entry: dict[str, Any]) -> str:
    return f"{entry['op']}-{RECORDED.index(entry)}"


@pytest.mark.parametrize("entry", [entry for entry in KNOWN if entry["status"] == 0], ids=_label)
def test_infer_shape_gives_the_recorded_outputs(entry: dict[str, Any]) -> None:
    op = golden_ops.get(entry["op"])
    params = json.loads(entry["param"]) or {}
    assert op.infer_shape(_descs(entry["in"]), params) == _descs(entry["out"])


@pytest.mark.parametrize("entry", [entry for entry in KNOWN if entry["status"] != 0], ids=_label)
def test_infer_shape_refuses_what_the_library_refused(entry: dict[str, Any]) -> None:
    op = golden_ops.get(entry["op"])
    params = json.loads(entry["param"]) or {}
    with pytest.raises(OperationError, match=entry["op"]):
        op.infer_shape(_descs(entry["in"]), params)


def test_recorded_entries_cover_the_operators() -> None:
    assert len(KNOWN) >= 152
    assert {entry["op"] for entry in KNOWN} >= {
        "ActivationOperation",
        "ConcatOperation",
        "ElewiseOperation",
        "GatherOperation",
        "LayerNormOperation",
        "LinearOperation",
        "PagedAttentionOperation",
        "ReduceOperation",
        "ReshapeAndCacheOperation",
        "RmsNormOperation",
        "RopeOperation",
        "SelfAttentionOperation",
        "SliceOperation",
        "SoftmaxOperation",
        "SortOperation",
        "SplitOperation",
        "TopkToppSamplingOperation",
        "TransposeOperation",
    }
