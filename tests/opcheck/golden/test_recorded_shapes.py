"""Shape inference against what the real library answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ait_llm.core import DType, TensorDesc
from ait_llm.opcheck.golden import RefusedError, golden_ops

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data/atb-trace/op-infershape.json").read_text()
)
# The parameters of these calls, which the library does not print, in the order of the record.
UNPRINTED: dict[str, list[dict[str, Any]]] = {
    "GatingOperation": [
        {"topkExpertNum": 1, "cumSumNum": 0},
        {"topkExpertNum": 2, "cumSumNum": 8},
        {"topkExpertNum": 2, "cumSumNum": 8, "deviceExpert": [0, 1]},
    ],
    "UnpadWithHiddenStateOperation": [{"qSeqLen": [16], "maxSeqLen": 32}],
    "PadWithHiddenStateOperation": [{"qSeqLen": [16], "maxSeqLen": 32}],
}


def _descs(raw: list[dict[str, Any]]) -> tuple[TensorDesc, ...]:
    return tuple(
        TensorDesc(DType.from_code(item["dtype"]), tuple(item["shape"]), item["format"])
        for item in raw
    )


def _label(entry: dict[str, Any]) -> str:
    return f"{entry['op']}-{RECORDED.index(entry)}"


def _params(entry: dict[str, Any]) -> dict[str, Any]:
    if entry["op"] not in UNPRINTED:
        return json.loads(entry["param"]) or {}
    calls = [other for other in RECORDED if other["op"] == entry["op"]]
    return UNPRINTED[entry["op"]][calls.index(entry)]


@pytest.mark.parametrize("entry", [e for e in RECORDED if e["status"] == 0], ids=_label)
def test_infer_shape_gives_the_recorded_outputs(entry: dict[str, Any]) -> None:
    op = golden_ops.get(entry["op"])
    assert op.infer_shape(_descs(entry["in"]), _params(entry)) == _descs(entry["out"])


@pytest.mark.parametrize("entry", [e for e in RECORDED if e["status"] != 0], ids=_label)
def test_infer_shape_refuses_with_the_recorded_status(entry: dict[str, Any]) -> None:
    op = golden_ops.get(entry["op"])
    with pytest.raises(RefusedError, match=entry["op"]) as caught:
        op.infer_shape(_descs(entry["in"]), _params(entry))
    assert caught.value.status == entry["status"]


def test_every_recorded_call_is_checked() -> None:
    assert [
        len([e for e in RECORDED if (e["status"] == 0) == valid]) for valid in (True, False)
    ] == [
        150,
        20,
    ]
    assert {entry["op"] for entry in RECORDED} <= set(golden_ops)
