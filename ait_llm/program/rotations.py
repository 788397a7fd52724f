"""What programs turn by rotary positions, and the cosines and sines that they take for it."""

from __future__ import annotations

from dataclasses import dataclass

from ait_llm.dumps.model import Tensor
from ait_llm.program.describe import is_float, shape_of
from ait_llm.program.flow import Value
from ait_llm.program.one_pass import Pass
from ait_llm.program.overwritten import Overwritten


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """Cosines and sines of all positions, of which an operator looks up those of its tokens.

    Attributes:
        op: the operator.
        table: ``[all positions, dim]``, the cosines in the first half of the columns.
        positions: of the tokens, ``[tokens]`` or ``[batch, seq]``.
    """

    op: int
    table: Tensor
    positions: Tensor


@dataclass(frozen=True, slots=True)
class Rotation:
    """One turn by rotary positions.

    Attributes:
        result: what was turned.
        cosine, sine: a row for each token; None where an operator looks them up.
        joined: where it does.
    """

    result: Value
    cosine: Value | None = None
    sine: Value | None = None
    joined: JoinedTable | None = None


def joined_table(run: Pass, overwritten: Overwritten, op: int) -> JoinedTable | None:
    """What an operator looks up that turns its arguments in place; None if it is not told apart.

    vLLM, SGLang and their kin: ``rotary_embedding(positions, query, key, …, cos_sin_cache, …)``.
    """
    operation = run.operations[op]
    changed = {tensor.index for tensor, _ in overwritten.results(op)}
    others = [tensor for tensor in operation.inputs if tensor.index not in changed]
    tables = [t for t in others if is_float(t) and len(shape_of(t) or ()) == 2]
    positions = [t for t in others if not is_float(t) and shape_of(t)]
    if operation.outputs or not changed or len(tables) != 1 or len(positions) != 1:
        return None
    return JoinedTable(op, tables[0], positions[0])
