"""What the vendor's cases expect to go through, through hostatb up to Setup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vendor.cases import OK, Case, CaseError, read_cases
from vendor.generator import Generator, NotRunError
from vendor.outcome import Disagreement, Outcome, Side
from vendor.stages import CHIP, End, end_of, shortened

_SETUP = "S"
_OTHER_OUTPUT = (
    "its output is not of the shape that the library infers, and that its Setup asks for; given "
    "that shape, it is set up"
)


def run(checkout: Path, operators: Sequence[str] = (), *, largest: int = 0) -> Outcome:
    """All cases on the chip that hostatb stands for, however large: nothing is computed."""
    del largest
    outcome, generator = Outcome(), None
    for case in read_cases(checkout, operators):
        if not case.is_for(CHIP) or case.status != OK:
            continue
        try:
            got, made = end_of(case, None, _SETUP), None
            if got.status != OK:  # the generator may make tensors of other shapes than the table's
                made = generator = generator or Generator(checkout)
                got = end_of(case, made, _SETUP)
        except (NotRunError, CaseError) as reason:
            outcome.skip(case.operator, str(reason))
            continue
        if got.status == OK:
            outcome.agree(case.operator)
        else:
            outcome.disagreed.append(_refused(case, made, got))
    return outcome


def _refused(case: Case, generator: Generator | None, got: End) -> Disagreement:
    if got.stage == _SETUP and end_of(case, generator, _SETUP, inferred=True).status == OK:
        said = shortened(got)
        return Disagreement(case.operator, case.label, said, Side.VENDOR, _OTHER_OUTPUT)
    return Disagreement(case.operator, case.label, shortened(got))
