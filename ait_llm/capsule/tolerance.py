"""The contract of one case, evaluated: numbers that need no definition of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ait_llm.judge.standards import Output, standards

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.capsule.carried.verdict import Found, Limits


@dataclass(frozen=True, eq=False)
class Tolerance:
    """What the contract permits for one output.

    Attributes:
        limits: for the script's own verdict.
        tensors: those that the script reads; ``bound``, ``deviation`` and ``defined``.
        text: in words.
    """

    limits: Limits
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    text: str = ""

    def judge(self, output: Output) -> Found:
        """The verdict that the script will come to."""
        from ait_llm.capsule.carried.verdict import judge

        return judge(output.mine, output.golden, self.limits)


def tolerance_of(output: Output) -> Tolerance:
    """Evaluate the contract for an output.

    Raises:
        UnverifiableError: it has no limit for this output.
    """
    from dataclasses import replace

    from ait_llm.capsule.carried.verdict import BITS, ROUNDING, STEPS, Limits
    from ait_llm.judge.standards.rounding import permitted_of

    golden = output.golden
    kernel = output.computation.golden.kernel(output.computation.params)
    moves = kernel.moves
    stored = {} if output.defined is None else {"defined": output.defined}
    floats = golden.dtype.is_floating_point and not moves and golden.numel() > 0
    permitted = permitted_of(output) if floats else None
    # Golden is right by definition, and what is permitted does not depend on what is judged.
    values = standards.get("contract")(replace(output, mine=golden)).values
    if permitted is not None:
        chance = {
            name: values[f"permitted_{name}"]
            for name in ("rms", "scale", "shift")
            if f"permitted_{name}" in values
        }
        limits = Limits(
            ROUNDING,
            chance,
            permitted.exact,
            permitted.bound,
            permitted.deviation,
            output.defined,
        )
        stored |= {"bound": permitted.bound, "deviation": permitted.deviation}
        return Tolerance(limits, stored, "each element within its bound, and errors like rounding")
    if "permitted_share" in values:
        share = values["permitted_share"]
        limits = Limits(STEPS, {"share": share}, defined=output.defined)
        return Tolerance(limits, stored, f"whole numbers, of which {share:.2g} may be off by 1")
    return Tolerance(
        Limits(BITS, {}, defined=output.defined, moves=kernel.keeps_nan), stored, "every bit"
    )
