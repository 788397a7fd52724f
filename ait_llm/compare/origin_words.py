"""The sentences that say why an operation is the origin of an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ait_llm.compare.introduced import Introduced, Unknown
from ait_llm.compare.origin_values import RunValues, Upstream
from ait_llm.core.comparison import Comparison

Results = Mapping[int, Introduced | Unknown]


def _number(value: float) -> str:
    return f"{value:.2g}"


def _name(values: RunValues, op: int) -> str:
    return values.run.operations[op].name


def _title(values: RunValues, value: int) -> str:
    """``outtensor0 of LinearOperation_0_1``, by the operation that computed or first reads it."""
    uses = values.flow.values[value].uses
    use = next((use for use in uses if use.role == "out"), uses[0])
    return f"{use.tensor.name} of {_name(values, use.op)}"


def _off(values: RunValues, value: int) -> str:
    """How far the first failure is off."""
    trouble = values.trouble(value)
    return f" ({trouble})" if trouble else ""


def _measured(result: Introduced) -> str:
    """What recomputation says about the guilty operation."""
    place = ", ".join(map(str, result.worst))
    values = f"[{place}] is {result.mine:.6g} and should be {result.right:.6g}"
    if result.error == float("inf"):
        return f"from its own inputs recomputed, outtensor{result.output} {values}"
    if result.is_wrong:
        return (
            f"from its own inputs recomputed, outtensor{result.output} is off by "
            f"{_number(result.error)} where rounding permits {_number(result.permitted)}; {values}"
        )
    return (
        f"from its own inputs recomputed, outtensor{result.output} is off by "
        f"{_number(result.error)}, up to {result.strict_excess:.3g} times what float32 sums and "
        f"one rounding permit; {values}"
    )


def _cleared(results: Results, guilty: int) -> str:
    count = sum(
        1
        for op, each in results.items()
        if op != guilty and isinstance(each, Introduced) and not each.is_suspect
    )
    if not count:
        return ""
    return f"; {count} other candidate{'s' if count > 1 else ''} recomputed and right"


def by_recomputation(
    values: RunValues,
    guilty: int,
    failed: int | None,
    results: Results,
    comparisons: Sequence[Comparison],
) -> str:
    """The operation's own error is more than its arithmetic permits."""
    result = results[guilty]
    assert isinstance(result, Introduced)
    text = _measured(result)
    if failed is not None and values.producer(failed) != guilty:
        text += f"; first seen in {_title(values, failed)}{_off(values, failed)}"
    elif failed is not None:
        text += f"; its inputs agree with golden and its output does not{_off(values, failed)}"
    return text + _cleared(results, guilty)


def by_comparison(
    values: RunValues,
    op: int,
    failed: int,
    near: Upstream,
    comparisons: Sequence[Comparison],
) -> str:
    """Inputs pass and outputs fail, and the operation cannot be recomputed."""
    errors = [error for value in near.agreeing if (error := values.error(value)) is not None]
    inputs = (
        f"its {len(near.agreeing)} compared inputs agree" if near.agreeing else "it is the first"
    )
    worst = f" (at most {_number(max(errors))} relative error)" if errors else ""
    return f"{inputs}{worst} and {_title(values, failed)} does not{_off(values, failed)}"


def by_elimination(
    values: RunValues,
    first: int,
    failed: int,
    unknown: Sequence[int],
    cleared: int,
    results: Results,
) -> str:
    """Some candidates cannot be recomputed, the others are right."""
    result = results.get(first)
    reason = result.reason if isinstance(result, Unknown) else "there are too many"
    text = f"{_title(values, failed)} is the first that fails{_off(values, failed)}; "
    if cleared:
        text += f"{cleared} operations before it were recomputed and are right, "
    if len(unknown) == 1:
        return text + f"this one could not be: {reason}"
    return text + f"{len(unknown)} could not be recomputed, such as this one: {reason}"


def by_definition(
    values: RunValues, op: int, failed: int, before: float, factor: float, count: int
) -> str:
    """The operation does what its parameters say, and golden does something else."""
    what = "it computes" if count == 1 else f"{count} operations compute"
    whose = "its" if count == 1 else "their"
    return (
        f"{what} rightly with {whose} own weights and parameters, so these are not those of "
        f"golden: {whose} inputs agree ({_number(before)} relative error at most), would be "
        f"amplified {factor:.2g} times, and {_title(values, failed)} is off{_off(values, failed)}"
    )


def by_differing_input(
    values: RunValues, op: int, value: int, comparisons: Sequence[Comparison]
) -> str:
    """What comes from outside of the run is not what golden has."""
    use = next(use for use in values.flow.values[value].reads if use.op == op)
    index = min(values.evidence[value].failed)
    comparison = comparisons[index]
    label = f" ({use.tensor.ir_name})" if use.tensor.ir_name else ""
    what = "weights" if values.is_weight(value) else "inputs"
    text = f"{what} differ already: {use.tensor.name}{label} is not that of golden"
    if comparison.worst is not None and comparison.worst_values is not None:
        place = ", ".join(map(str, comparison.worst))
        golden, mine = comparison.worst_values
        text += f", [{place}] is {mine:.6g} instead of {golden:.6g}"
    elif comparison.reason:
        text += f" ({comparison.reason})"
    if what == "inputs" and values.is_index(value):
        text += "; both runs must get the same tokens"
    return text


def after_all_cleared(values: RunValues, op: int, failed: int, results: Results) -> str:
    """Nobody adds more than its share: error that grew, or parameters that differ."""
    count = sum(1 for each in results.values() if isinstance(each, Introduced))
    text = f"{_title(values, failed)} is the first that fails{_off(values, failed)}; "
    if not count:
        return text + "no operation before it could be recomputed"
    cached = any(values.works_in_place(each) for each in results)
    cache = "or a cache was wrong before this step, " if cached else ""
    return text + (
        f"{count} operation{'s' if count > 1 else ''} up to it recomputed from their own inputs "
        f"and parameters are right, so the error was inherited and grew, {cache}or weights or "
        "parameters are not those of golden"
    )


def first_seen_later(values: RunValues, failed: int) -> str:
    """The error lay in a cache until a later run read it."""
    return (
        f"first seen in {_title(values, failed)} of step {values.run.step}"
        f"{_off(values, failed)}, which reads it from a cache"
    )


def without_failure(evidence: str) -> str:
    """The evidence of an operation whose error stays within every tolerance."""
    return f"{evidence}; this is within the tolerance of the comparisons"
