"""The manual's standard: a share of the elements keeps a relative error, both by data type.

Source: the tables of the manual's first version, which its columns belong to. Changed where they
are known to err: a value that is not finite where golden is finite always fails; a rate that is
just reached passes; quantised integers may be off by one step, not by their own size; elements
with a golden value near zero are measured against 2**-7 instead of passing unseen.

It is blind to what it averages away: one wrong element in a thousand passes. It also alarms at
sums that cancel, whose relative error is large in any arithmetic.
"""

from __future__ import annotations

from ait_llm.judge.standards.base import Judgement, Output, standards
from ait_llm.opcheck.element_errors import errors_of


@standards.register("classic")
def classic(output: Output) -> Judgement:
    """Judge by the manual's levels.

    Raises:
        UnverifiableError: the manual has none for the type of the output.
    """
    from ait_llm.opcheck.golden import UnverifiableError

    errors = errors_of(output)
    level = errors.level
    if level is None:
        name = str(output.mine.dtype).removeprefix("torch.")
        raise UnverifiableError(f"the classic standard has no limit for {name}; choose another one")
    rate = errors.rate(absolute=level.absolute)
    values = {"rate": rate}
    if not errors.broken and rate >= level.rate:
        return Judgement(True, level.text, values=values)
    if errors.broken:
        reason = f"{errors.broken} elements are not finite, or not where golden is not"
    else:
        kind = "an error" if level.absolute else "a relative error"
        reason = (
            f"{rate:.6g}% of the elements have {kind} of at most {level.error:g}, "
            f"{level.rate:g}% must"
        )
    return Judgement(False, level.text, reason, values, errors.first_bad)
