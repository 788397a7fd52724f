"""The manual's standard: a share of the elements keeps a relative error, both by data type.

Source: the tables of the manual's first version, which its columns belong to. Changed where they
are known to err: a value that is not finite where golden is finite always fails; a rate that is
just reached passes; quantised integers may be off by one step, not by their own size; elements
with a golden value near zero are measured against 2**-7 instead of passing unseen.

It is blind to what it averages away: one wrong element in a thousand passes. It also alarms at
sums that cancel, whose relative error is large in any arithmetic.
"""

from __future__ import annotations

from ait_llm.opcheck.element_errors import LEVELS, Level, errors_of
from ait_llm.opcheck.standards.base import Judgement, Output, standards


def level_of(output: Output) -> Level:
    """The level of the type of the output under test.

    Raises:
        UnverifiableError: the manual has none for it.
    """
    from ait_llm.opcheck.golden import UnverifiableError

    name = str(output.mine.dtype).removeprefix("torch.")
    for dtype, level in LEVELS.items():
        if dtype.torch_name == name:
            return level
    raise UnverifiableError(f"the classic standard has no limit for {name}; choose another one")


@standards.register("classic")
def classic(output: Output) -> Judgement:
    """Judge by the manual's levels."""
    level, errors = level_of(output), errors_of(output)
    rate = errors.rate(level, absolute=level.absolute)
    values = {"rate": rate}
    broken = int(errors.broken.sum())
    if not broken and rate >= level.rate:
        return Judgement(True, level.text, values=values)
    bad = errors.absolute if level.absolute else errors.relative
    first = int((bad > level.error).int().argmax())
    if broken:
        reason = f"{broken} elements are not finite, or not where golden is not"
    else:
        kind = "an error" if level.absolute else "a relative error"
        reason = (
            f"{rate:.6g}% of the elements have {kind} of at most {level.error:g}, "
            f"{level.rate:g}% must"
        )
    return Judgement(False, level.text, reason, values, first)
