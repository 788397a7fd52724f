"""The vendor's golden generator against the golden operators, on all its operator cases."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

import torch
from torch import Tensor
from vendor.cases import Case, CaseError, read_cases
from vendor.difference import difference
from vendor.explanations import explain
from vendor.generator import DEVICES, Generator, NotRunError, Numbers, limit
from vendor.outcome import Disagreement, Outcome
from vendor.parameters import printed

from ait_llm.errors import OperationError
from ait_llm.opcheck.golden import GOLDEN, GoldenOp, Params, Result, UnverifiableError, golden_ops

# Larger ones take more memory and time than they tell.
MOST_ELEMENTS = 1 << 28
SECONDS = 60


def run(checkout: Path, operators: Sequence[str] = ()) -> Outcome:
    """All positive cases of the checkout, or those of some operators."""
    torch.set_num_threads(1)
    outcome = Outcome()
    generator = Generator(checkout)
    for case in read_cases(checkout, operators):
        if not case.passes:
            continue
        try:
            said = compare(case, generator)
        except (NotRunError, CaseError, UnverifiableError) as reason:
            outcome.skip(case.operator, str(reason))
            continue
        if said:
            side, why = explain(case, said)
            outcome.disagreed.append(Disagreement(case.operator, case.label, said, side, why))
        else:
            outcome.agree(case.operator)
    return outcome


def compare(case: Case, generator: Generator) -> str:
    """In what the golden operator differs from the vendor's on one case; empty if in nothing."""
    if case.operator not in golden_ops:
        raise NotRunError("no golden operator of that name")
    golden = golden_ops.get(case.operator)
    numbers = numbers_of(case, generator)
    params = printed(case)
    try:
        with limit(SECONDS, "the golden operator"):
            result = computed(golden, numbers, params)
    except UnverifiableError:
        raise
    except OperationError as error:
        return f"ours refuses: {error}"
    return _differ(golden, numbers, params, result)


def numbers_of(case: Case, generator: Generator) -> Numbers:
    """What the vendor's generator makes of a case, or NotRunError with the reason."""
    if sum(prod(each.shape) for each in case.inputs + case.outputs) > MOST_ELEMENTS:
        raise NotRunError("too large")
    chip = next(name for name in DEVICES if case.is_for(name))
    try:
        return generator.numbers(case, chip, SECONDS)
    except NotRunError:
        raise
    except Exception as error:
        raise NotRunError(f"the generator fails: {type(error).__name__}: {error}") from error


def computed(golden: GoldenOp, numbers: Numbers, params: Params) -> Result:
    """The golden operator's result; of a collective one, that of the rank in the parameters."""
    inputs = [None if tensor.numel() == 0 else tensor for tensor in numbers.inputs]
    if golden.compute_ranks is None:
        return golden.compute(inputs, params, GOLDEN)
    # where the generator keeps no inputs of others, all ranks draw the same ones
    firsts = numbers.of_ranks or [numbers.inputs[0]] * int(params.get("rankSize", 1))
    per_rank = [[own, *inputs[1:]] for own in firsts]
    given = [{**params, "rank": number} for number in range(len(per_rank))]
    return golden.compute_ranks(per_rank, given, GOLDEN)[int(params.get("rank", 0))]


def results_of(result: Result) -> list[Tensor]:
    """The tensors that the vendor's goldens have: outputs, or what is overwritten."""
    if result.outputs:
        return list(result.outputs)
    return [result.updated_inputs[index] for index in sorted(result.updated_inputs)]


def _differ(golden: GoldenOp, numbers: Numbers, params: Params, result: Result) -> str:
    mine = results_of(result)
    if len(mine) > len(numbers.golden):
        return f"{len(numbers.golden)} outputs, ours {len(mine)}"
    quantises = golden.kernel(params).quantises
    dtypes = {tensor.dtype for tensor in numbers.inputs}
    found = []
    for index, (theirs, ours) in enumerate(zip(numbers.golden, mine, strict=False)):
        undefined = result.undefined.get(index)
        said = difference(theirs, ours, dtypes=dtypes, quantises=quantises, undefined=undefined)
        if said:
            found.append(f"output {index}: {said}")
    if found and golden.accepts is not None:
        as_ours = [
            theirs.reshape(ours.shape).to(ours.dtype)
            for theirs, ours in zip(numbers.golden, mine, strict=False)
            if theirs.numel() == ours.numel()
        ]
        if len(as_ours) == len(mine) and golden.accepts(numbers.inputs, as_ours, params):
            return ""
    return "; ".join(found)
