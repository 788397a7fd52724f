"""The vendor's golden generator against the golden operators, on all its operator cases."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

import torch
from vendor.apart import TooMuchError, apart
from vendor.cases import Case, CaseError, read_cases
from vendor.explanations import explain
from vendor.generator import DEVICES, Generator, NotRunError, limit
from vendor.outcome import Disagreement, Outcome, Side
from vendor.parameters import printed

from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import UnverifiableError, golden_ops
from ait_llm.opcheck.selftest.recorded import Recorded

SECONDS = 120


def run(checkout: Path, operators: Sequence[str] = (), *, largest: int = 1 << 28) -> Outcome:
    """All positive cases of the checkout, or those of some operators, up to a size."""
    torch.set_num_threads(1)
    outcome = Outcome()
    generator = Generator(checkout)
    for case in read_cases(checkout, operators):
        if not case.passes:
            continue
        try:
            said, side, why = apart(lambda case=case: _compared(case, generator, largest))
        except (NotRunError, CaseError, UnverifiableError, TooMuchError) as reason:
            outcome.skip(case.operator, str(reason))
            continue
        if said:
            outcome.disagreed.append(Disagreement(case.operator, case.label, said, side, why))
        else:
            outcome.agree(case.operator)
    return outcome


def _compared(case: Case, generator: Generator, largest: int) -> tuple[str, Side, str]:
    """In what ours differs, who is to blame, and what shows it."""
    made = recorded(case, generator, largest=largest)
    said = differs(made)
    return (said, *(explain(made) if said else (Side.OURS, "")))


def differs(one: Recorded) -> str:
    """In what the golden operator differs from the numbers of a case; empty if in nothing."""
    try:
        with limit(SECONDS, "the golden operator"):
            return one.differs()
    except UnverifiableError:
        raise
    except OperationError as error:
        return f"ours refuses: {error}"


def recorded(case: Case, generator: Generator, *, largest: int = 1 << 28) -> Recorded:
    """What the vendor's generator makes of a case, or NotRunError with the reason."""
    if case.operator not in golden_ops:
        raise NotRunError("no golden operator of that name")
    if sum(prod(each.shape) for each in case.inputs + case.outputs) > largest:
        raise NotRunError(f"more than {largest} elements")
    chip = next(name for name in DEVICES if case.is_for(name))
    try:
        made = generator.numbers(case, chip, SECONDS)
    except NotRunError:
        raise
    except Exception as error:
        raise NotRunError(f"the generator fails: {type(error).__name__}: {error}") from error
    ranks = [[own, *made.inputs[1:]] for own in made.of_ranks or ()]
    return Recorded(case.operator, case.label, printed(case), made.inputs, made.golden, ranks)
