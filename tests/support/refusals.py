"""Refusals on record: parameters, tensors, and the stage and status of the refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vendor.stages import param_of

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.acceptance import Gate
from ait_llm.hostatb.acceptance.table import FORMATS
from ait_llm.hostatb.operators import operator_specs
from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.golden.base import RefusedError

RECORD = Path(__file__).parents[1] / "data" / "vendor" / "refusals.json"


def recorded() -> dict[str, list[list[Any]]]:
    """By operator: parameters, inputs, outputs, stage and status of every case on record."""
    found: dict[str, list[list[Any]]] = json.loads(RECORD.read_text("utf-8"))
    return found


def refusal(operator: str, params: dict[str, Any], inputs: str, outputs: str) -> tuple[str, int]:
    """At which stage (C, I, S) the operator refuses, and with which status; 0 if it does not."""
    stage = "C"
    try:
        entries = param_of(operator, params).entries(printed_only=False)
        spec = operator_specs.get(operator)
        gate = Gate(operator, entries, len(spec.tensor_names(entries)[0]))
        stage = "I"
        given = _descs(inputs)
        gate.check_inputs(given)
        inferred = golden_ops.get(operator).infer_shape(given, entries)
        stage = "S"
        gate.check_setup(given, _descs(outputs), lambda: inferred)
    except RefusedError as error:
        return stage, int(error.status)
    return stage, 0


def _descs(text: str) -> list[TensorDesc]:
    """``float16[2,4]``; ``float16/fractal_nz[2,4]`` names another format than ND."""
    return [_desc(word) for word in text.split()]


def _desc(word: str) -> TensorDesc:
    kind, _, dims = word.rstrip("]").partition("[")
    name, _, layout = kind.partition("/")
    shape = tuple(int(number) for number in dims.split(",") if number)
    return TensorDesc(DType.from_label(name), shape, FORMATS[layout or "nd"])
