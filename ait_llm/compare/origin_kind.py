"""What kind of bug the operation has that was named as an origin."""

from __future__ import annotations

from math import prod

from ait_llm.diagnosis import Call, Diagnosis, Kind, diagnose
from ait_llm.dumps.model import Operation
from ait_llm.errors import AitError
from ait_llm.opcheck.cases import REFUSALS, first_line, golden_of, inputs_of, outputs_of, params_of


def diagnosis_of(operation: Operation) -> Diagnosis:
    """Test what an operation adds itself against the signatures of known kinds of bugs.

    Args:
        operation: an operator that was recomputed from its own inputs, with its outputs.
    """
    golden = golden_of(operation, whole=True)
    if golden is None:
        return Diagnosis(Kind.UNKNOWN, f"there is no golden {operation.type}")
    try:
        inputs, outputs = inputs_of(operation), outputs_of(operation)
        filled = {index: tensor for index, tensor in outputs.items() if prod(tensor.shape)}
        return diagnose(Call(golden, inputs, params_of(operation), filled))
    except (AitError, *REFUSALS) as error:
        return Diagnosis(Kind.UNKNOWN, f"it could not be diagnosed: {first_line(error)}")
