"""The sentences that say why an operation is the origin of an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ait_llm.compare.origin_places import (
    POSITIONS,
    element,
    other_frequencies,
    theta,
    told_difference,
)
from ait_llm.compare.origin_values import RunValues, Upstream
from ait_llm.core.comparison import Comparison
from ait_llm.core.definition import DefinitionDifference
from ait_llm.dumps.model import Operation
from ait_llm.judge.evidence import Introduced, Unknown

Results = Mapping[int, Introduced | Unknown]
_TOLD = 3  # differences of one operation
_CALLED = ("Functional", "Torch")  # how captures of calls name the functions of torch
_PARAMETERS = {
    "conv1d": (1, 2),
    "conv2d": (1, 2),
    "embedding": (1,),
    "group_norm": (2, 3),
    "layer_norm": (2, 3),
    "linear": (1, 2),
    "rms_norm": (2,),
}
INHERITED = "so the error was inherited and grew"


def _number(value: float) -> str:
    return f"{value:.2g}"


def name_of(values: RunValues, op: int) -> str:
    """The name of an operation."""
    return values.run.operations[op].name


def title_of(values: RunValues, value: int) -> str:
    """``outtensor0 of LinearOperation_0_1``, by the operation that computed or first reads it."""
    uses = values.flow.values[value].uses
    use = next((use for use in uses if use.role == "out"), uses[0])
    return f"{use.tensor.name} of {name_of(values, use.op)}"


def off_by(values: RunValues, value: int) -> str:
    """How far the first failure is off."""
    trouble = values.trouble(value)
    return f" ({trouble})" if trouble else ""


def first_that_fails(values: RunValues, failed: int) -> str:
    """The first value that does not agree, and how far it is off."""
    return f"{title_of(values, failed)} is the first value that fails{off_by(values, failed)}"


def own_error(result: Introduced) -> str:
    """What recomputation says about the guilty operation."""
    place = ", ".join(map(str, result.worst))
    values = f"[{place}] is {result.mine:.6g} and should be {result.right:.6g}"
    text = f"from its own inputs recomputed, {result.name}"
    if result.error == float("inf"):
        return f"{text} {values}"
    text += f" is off by {_number(result.error)}"
    if result.error > result.permitted:
        return f"{text} where rounding permits {_number(result.permitted)}; {values}"
    return f"{text}: {result.reason}; {values}"


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
    text = own_error(result)
    if failed is not None and values.producer(failed) != guilty:
        text += f"; first seen in {title_of(values, failed)}{off_by(values, failed)}"
    elif failed is not None:
        text += f"; its inputs agree with golden and its output does not{off_by(values, failed)}"
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
    count, failing = len(near.agreeing), title_of(values, failed)
    if not count:
        return f"it is the first, and {failing} does not agree with golden{off_by(values, failed)}"
    inputs = "its compared input agrees" if count == 1 else f"its {count} compared inputs agree"
    worst = f" (at most {_number(max(errors))} relative error)" if errors else ""
    return f"{inputs}{worst} and {failing} does not{off_by(values, failed)}"


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
    text = f"{title_of(values, failed)} is the first that fails{off_by(values, failed)}; "
    if cleared:
        text += f"{cleared} operations before it were recomputed and are right, "
    if len(unknown) == 1:
        return text + f"this one could not be: {reason}"
    return text + f"{len(unknown)} could not be recomputed, such as this one: {reason}"


def only_one_is_given(golden: Operation, mine: Operation) -> str:
    """What only one of two operations of a type is given by name, as a clause; empty if nothing."""
    named = [
        dict.fromkeys(each.ir_name for each in one.inputs if (each.ir_name or "")[:1].isalpha())
        for one in (golden, mine)
    ]
    text = ""
    for number, whose in enumerate(
        (
            "golden's is given `{}`, and this one is not",
            "this one is given `{}`, and golden's is not",
        )
    ):
        for name in named[number]:
            if name not in named[1 - number]:
                text += "; " + whose.format(name)
    return text if golden.type == mine.type else ""


def by_definition(
    values: RunValues,
    op: int,
    failed: int,
    before: float,
    factor: float,
    count: int,
    *,
    explained: bool = False,
) -> str:
    """The operation does what its parameters say, and golden does something else.

    Args:
        values: my run and what the comparisons say about it.
        op: the operation, or the last of ``count``.
        failed: what it made.
        before: largest relative error of what went in.
        factor: by which that would be amplified.
        count: of operations.
        explained: what went in differs, by no more than what it was computed from explains.
    """
    what = "it computes" if count == 1 else f"{count} operations compute"
    whose = "its" if count == 1 else "their"
    own = "weights and parameters" if count > 1 else _own(values, op)
    told = f"with {whose} own {own}, so these are not those of golden"
    if not own:
        told = "what it was called for, and golden something else"
    agree = "differ by no more than what came before explains" if explained else "agree"
    return (
        f"{what} rightly {told}: {whose} inputs {agree} ({_number(before)} relative error at "
        f"most), would {_amplified(factor)}, and {title_of(values, failed)} is "
        f"off{off_by(values, failed)}"
    )


def _amplified(factor: float) -> str:
    text = f"{factor:.2g}"
    return "not be amplified" if text == "1" else f"be amplified {text} times"


def has_own(values: RunValues, op: int) -> bool:
    """True for an operation with weights, or parameters, beside its inputs."""
    return bool(_own(values, op))


def _own(values: RunValues, op: int) -> str:
    """What an operation computes with beside its inputs; empty for one that has nothing such."""
    operation = values.run.operations[op]
    has_weights = bool(operation.weights or operation.parameters) or any(
        values.is_weight(value.number) for value in values.inputs(op)
    )
    has_parameters = bool(operation.params or operation.definition)
    there = ((has_weights, "weights"), (has_parameters, "parameters"))
    return " and ".join(word for is_there, word in there if is_there)


def by_other_ranks(values: RunValues, failed: int) -> str:
    """A collective that computes rightly, which another rank gave something else."""
    return (
        f"it makes what all its ranks brought: {title_of(values, failed)} is "
        f"off{off_by(values, failed)} by what another rank brought"
    )


def by_golden(values: RunValues, op: int, golden: Operation, wrong: Introduced) -> str:
    """Mine computes rightly, and golden does not."""
    return (
        f"golden is the wrong side here: {wrong.name} of golden's `{golden.name}` is not what its "
        f"own inputs make ({_number(wrong.error)} relative error), and that of mine is; exchange "
        "-gp and -mp if the sides were mixed up"
    )


def by_other_weight(
    values: RunValues, item: Comparison, failed: int | None, remarks: Sequence[str] = ()
) -> str:
    """A weight is not that of golden, and what else is known of it."""
    assert item.mine is not None
    text = f"`{item.mine.name}` of `{item.mine.op}` is not that of golden"
    if item.histogram is not None and (count := sum(item.histogram)):
        text += f", {100 * (1 - item.histogram[0] / count):.3g} % of its elements differ"
    if item.worst is not None and item.worst_values is not None:
        place = ", ".join(map(str, item.worst))
        golden, mine = item.worst_values
        text += f", most at [{place}]: {element(mine)} instead of {element(golden)}"
    elif item.reason:
        text += f" ({item.reason})"
    if item.mine.name.endswith("inv_freq") and (powers := theta(item)):
        text += f"; {powers}"
    first = () if failed is None else (first_that_fails(values, failed),)
    return "; ".join((text, *remarks, *first))


def by_other_definition(
    values: RunValues,
    differences: Sequence[DefinitionDifference],
    failed: int | None,
    *,
    before: bool = False,
) -> str:
    """An operation is defined otherwise than its golden counterpart."""
    text = "; ".join(each.text for each in differences[:_TOLD])
    if len(differences) > _TOLD:
        text += f"; {len(differences) - _TOLD} more of it differ"
    if failed is None:
        return text
    first = first_that_fails(values, failed)
    if before:
        return f"{text}; what it makes is off within the tolerance, and {first}"
    return f"{text}; {first}"


def by_differing_input(
    values: RunValues, op: int, value: int, comparisons: Sequence[Comparison]
) -> str:
    """What comes from outside of the run is not what golden has."""
    use = next(use for use in values.flow.values[value].reads if use.op == op)
    index = min(values.evidence[value].failed)
    comparison = comparisons[index]
    if frequencies := other_frequencies(values, value, comparison):
        return f"inputs differ already: {frequencies}"
    name = use.tensor.ir_name or ""
    label = f" ({name})" if name and not name.isdigit() else ""
    is_weight = values.is_weight(value) or is_parameter(values.run.operations[op], name)
    what = "weights" if is_weight else "inputs"
    text = f"{what} differ already: {use.tensor.name}{label} is not that of golden"
    if difference := told_difference(comparison):
        text += f", {difference}"
    elif comparison.reason:
        text += f" ({comparison.reason})"
    if what == "inputs" and values.is_index(value) and use.tensor.shape:
        names = [each.tensor.ir_name or "" for each in values.flow.values[value].reads]
        is_place = any(POSITIONS in each.lower() for each in names)
        text += f"; both runs must get the same {'positions' if is_place else 'tokens'}"
    return text


def is_parameter(operation: Operation, argument: str) -> bool:
    """True for ``input.1`` of ``Functional.linear.0``: an argument that a module keeps."""
    library, _, rest = operation.name.partition(".")
    if library not in _CALLED:
        return False
    places = _PARAMETERS.get(rest.partition(".")[0], ())
    return argument in {f"input.{place}" for place in places}


def after_all_cleared(values: RunValues, op: int, failed: int, results: Results) -> str:
    """Nobody adds more than its share: error that grew, or parameters that differ."""
    count = sum(1 for each in results.values() if isinstance(each, Introduced))
    text = f"{title_of(values, failed)} is the first that fails{off_by(values, failed)}; "
    if not count:
        return text + "no operation before it could be recomputed"
    cached = any(values.works_in_place(each) for each in results)
    cache = "or a cache was wrong before this step, " if cached else ""
    return text + (
        f"{count} operation{'s' if count > 1 else ''} up to it recomputed from their own inputs "
        f"and parameters are right, {INHERITED}, {cache}or weights or "
        "parameters are not those of golden"
    )


def first_seen_later(values: RunValues, failed: int) -> str:
    """The error lay in a cache until a later run read it."""
    return (
        f"first seen in {title_of(values, failed)} of step {values.run.step}"
        f"{off_by(values, failed)}, which reads it from a cache"
    )


def inherited(values: RunValues, agreeing: Sequence[int]) -> str:
    """Why a value beyond its limit is no failure."""
    errors = [error for value in agreeing if (error := values.error(value)) is not None]
    return f"no more than its inputs explain, which are {_number(max(errors, default=0.0))} off"


def lost_in_terms(smaller: float) -> str:
    """Why a small sum of large values is no failure."""
    return (
        f"it is {_number(smaller)} times smaller than the largest of what it is computed from, "
        "against which its error is within the tolerance, and the results of all that reads it "
        "agree"
    )


def behind_a_choice(evidence: str) -> str:
    """The evidence of an operation behind a choice that golden made differently."""
    return f"{evidence}; it is not held to golden's, because the runs chose differently before it"


def without_failure(evidence: str) -> str:
    """The evidence of an operation whose error stays within every tolerance."""
    return f"{evidence}; this is within the tolerance of the comparisons"


def behind_stages(values: RunValues, evidence: str, known: Sequence[int]) -> str:
    """The evidence of what lies behind values that golden makes within its module, too."""
    return f"{evidence}; what golden makes within its module is there up to " + title_of(
        values, known[-1]
    )
