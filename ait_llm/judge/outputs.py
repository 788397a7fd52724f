"""Outputs of one operator against its golden results: the part that dumps and kernels share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ait_llm.core.comparison import Verdict
from ait_llm.errors import AitError
from ait_llm.judge.real_parts import in_real_parts, is_complex, of_real_parts, real_parts
from ait_llm.judge.standards import Computation, Judgement, Output, Standard, standards
from ait_llm.opcheck.cases import REFUSALS, evaluate, first_line
from ait_llm.opcheck.element_errors import cosine_similarity, errors_of, kl_divergence
from ait_llm.opcheck.outcome import Checked

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result

    Run = Callable[[Mapping[str, Any], Arithmetic], Result]

METRICS = ("abs", "cos_sim", "kl")


@dataclass(frozen=True, eq=False)
class Judged:
    """One output with its verdict, and the tensors behind it while they are at hand.

    Attributes:
        checked: the verdict and the numbers.
        output: golden and mine; None where they were not compared.
        params: the parameters that golden was computed with.
    """

    checked: Checked
    output: Output | None = None
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Produced:
    """What an operator produced.

    Attributes:
        outputs: by index.
        inputs_after: inputs after it ran, by index, for operators that overwrite them.
        absent: why an output that is not in ``outputs`` has no values.
        shaped: shapes must be golden's, not only as many elements.
        whole: they are all that it made: number, shapes and types must be golden's. A dump may lack
            some, and tells booleans from small whole numbers by luck.
    """

    outputs: Mapping[int, Tensor]
    inputs_after: Mapping[int, Tensor]
    absent: str = "it was not saved"
    shaped: bool = False
    whole: bool = False


def judge_outputs(
    golden: GoldenOp,
    inputs: Sequence[Tensor | None],
    params: Mapping[str, Any],
    produced: Produced,
    standard: Standard,
    base: Checked,
    *,
    metrics: Sequence[str] | None = (),
    run: Run | None = None,
) -> list[Judged]:
    """Judge each output of one operator.

    Where the first parameters do not fit, those that a dump cannot tell apart from them are tried;
    where the operator may choose (draws, equal values), legal choices pass.

    Args:
        golden: the operator.
        inputs: as dumped.
        params: as printed.
        produced: what the operator made.
        standard: the judge.
        base: identity of the operator, for the results.
        metrics: optional columns to fill, of :data:`METRICS`; None to leave out those of the manual
            too.
        run: computes golden in an arithmetic; the golden operator itself unless given.

    Raises:
        AitError: golden cannot be computed of these inputs.
    """
    if any(map(is_complex, (*inputs, *produced.outputs.values()))):
        judged = judge_outputs(
            of_real_parts(golden, inputs),
            [None if tensor is None else real_parts(tensor) for tensor in inputs],
            params,
            replace(
                produced,
                outputs={index: real_parts(one) for index, one in produced.outputs.items()},
                inputs_after={i: real_parts(one) for i, one in produced.inputs_after.items()},
            ),
            standard,
            base,
            metrics=metrics,
            run=None if run is None else lambda own, how: in_real_parts(run(own, how)),
        )
        return [_of_complex(item, produced) for item in judged]
    compute = run or remembered(lambda own, how: evaluate(golden, inputs, own, how), standard)
    outputs = _listed(produced)
    known = golden.recover(inputs, outputs, params)
    first = _judge_with(golden, inputs, known, compute, produced, standard, base, metrics)
    if all(item.checked.verdict is not Verdict.FAIL for item in first):
        return first
    for other in golden.alternatives(known):
        try:
            second = _judge_with(golden, inputs, other, compute, produced, standard, base, metrics)
        except (AitError, *REFUSALS):
            continue
        if all(item.checked.verdict is not Verdict.FAIL for item in second):
            changed = ", ".join(
                key if value is True else f"{key} {value}"
                for key, value in other.items()
                if known.get(key) != value
            )
            return [
                _noted(item, f"computed with {changed}, which the dump does not tell")
                for item in second
            ]
    if golden.accepts is not None and all(tensor is not None for tensor in outputs):
        given = [tensor for tensor in outputs if tensor is not None]
        if golden.accepts(inputs, given, known):
            note = "another legal result than golden's: the operator or its kernels may choose it"
            return [_noted(replace(item, checked=_passed(item.checked)), note) for item in first]
    return first


def _of_complex(item: Judged, produced: Produced) -> Judged:
    """A verdict about real parts as one about the complex numbers that they are of."""
    name = item.checked.output
    whole = next((t for i, t in produced.outputs.items() if name == f"outtensor{i}"), None)
    if whole is None or not whole.is_complex():
        return item
    kind = str(whole.dtype).removeprefix("torch.")
    return replace(item, checked=replace(item.checked, dtype=kind, shape=tuple(whole.shape)))


def remembered(run: Run, standard: Standard | None = None) -> Run:
    """The same function, computing each result once.

    Where an operator rounds at its end only, its results before that come with those after it, and
    what rounding does to them where the standard, ``contract`` unless given, is one that asks.
    """
    from ait_llm.opcheck.golden.base import GOLDEN, UNROUNDED, Noting

    results: dict[tuple[str, Arithmetic], Result] = {}

    def once(params: Mapping[str, Any], arithmetic: Arithmetic) -> Result:
        text = json.dumps(dict(params), sort_keys=True, default=str)
        if (text, arithmetic) in results:
            return results[text, arithmetic]
        if arithmetic == GOLDEN:
            noting = Noting(round_output=False, felt=standard in (None, standards.get("contract")))
            unrounded = run(params, noting)
            rounded = noting.rounded(unrounded)
            if rounded is not None:
                results[text, UNROUNDED] = unrounded
                results[text, GOLDEN] = rounded
                return rounded
        results[text, arithmetic] = run(params, arithmetic)
        return results[text, arithmetic]

    return once


def overwritten(
    golden: GoldenOp,
    inputs: Sequence[Tensor | None],
    params: Mapping[str, Any],
    produced: Produced,
    run: Run,
) -> frozenset[int]:
    """Indices of inputs that an operator overwrites.

    Args:
        golden, inputs, params, produced, run: as :func:`judge_outputs` takes them.
    """
    from ait_llm.opcheck.golden import GOLDEN

    if golden.rounds_last:
        return frozenset()
    known = golden.recover(inputs, _listed(produced), params)
    return frozenset(run(known, GOLDEN).updated_inputs)


def _listed(produced: Produced) -> list[Tensor | None]:
    count = max(produced.outputs, default=-1) + 1
    return [produced.outputs.get(index) for index in range(count)]


def _passed(checked: Checked) -> Checked:
    if checked.verdict is not Verdict.FAIL:
        return checked
    return replace(checked, verdict=Verdict.PASS, reason="", first_bad=None)


def _noted(item: Judged, note: str) -> Judged:
    notes = "; ".join(filter(None, (item.checked.note, note)))
    return replace(item, checked=replace(item.checked, note=notes))


def _judge_with(
    golden: GoldenOp,
    inputs: Sequence[Tensor | None],
    params: Mapping[str, Any],
    compute: Run,
    produced: Produced,
    standard: Standard,
    base: Checked,
    metrics: Sequence[str] | None,
) -> list[Judged]:
    from ait_llm.opcheck.golden import GOLDEN

    computation = Computation(
        golden,
        list(inputs),
        params,
        lambda arithmetic: compute(params, arithmetic),
        verdict_only=metrics is not None,
    )
    result = computation.result(GOLDEN)
    found = []
    for index, tensor in enumerate(result.outputs):
        place = (f"outtensor{index}", index, False)
        mine = produced.outputs.get(index)
        undefined = result.undefined.get(index)
        found.append(
            _one(place, tensor, mine, undefined, computation, produced, standard, base, metrics)
        )
    formal = {id(tensor) for tensor in result.outputs}  # the same memory as an output
    for index, tensor in sorted(result.updated_inputs.items()):
        if id(tensor) not in formal:
            place = (f"intensor{index}", index, True)
            mine = produced.inputs_after.get(index)
            found.append(
                _one(place, tensor, mine, None, computation, produced, standard, base, metrics)
            )
    for index in sorted(set(produced.outputs) - set(range(len(result.outputs)))):
        checked = replace(
            base,
            output=f"outtensor{index}",
            verdict=Verdict.FAIL if produced.whole else Verdict.SKIPPED,
            reason=f"golden {golden.name} has {len(result.outputs)} outputs for these parameters",
        )
        found.append(Judged(checked))
    if not found:
        reason = f"{golden.name} has no output and overwrites no input"
        found.append(Judged(replace(base, verdict=Verdict.SKIPPED, reason=reason)))
    return found


def _one(
    place: tuple[str, int, bool],
    golden: Tensor,
    mine: Tensor | None,
    undefined: Tensor | None,
    computation: Computation,
    produced: Produced,
    standard: Standard,
    base: Checked,
    metrics: Sequence[str] | None,
) -> Judged:
    name, index, is_input = place
    base = replace(base, output=name)
    if mine is None and produced.whole:
        return Judged(replace(base, verdict=Verdict.FAIL, reason=produced.absent))
    if mine is None:
        if not golden.numel():
            return Judged(replace(base, verdict=Verdict.PASS, note="it is empty, as it should be"))
        return Judged(replace(base, verdict=Verdict.SKIPPED, reason=produced.absent))
    base = replace(base, dtype=str(mine.dtype).removeprefix("torch."), shape=tuple(mine.shape))
    if reason := misfit(golden, mine, shaped=produced.shaped, whole=produced.whole):
        return Judged(replace(base, verdict=Verdict.FAIL, reason=reason))
    defined = None if undefined is None else ~undefined.broadcast_to(golden.shape)
    if defined is not None and golden.numel() and not defined.any():
        reason = "the operator does not say what this output holds"
        return Judged(replace(base, verdict=Verdict.SKIPPED, reason=reason))
    output = Output(name, index, is_input, golden, mine.reshape(golden.shape), defined, computation)
    checked = base if metrics is None else measured(base, output, metrics)
    try:
        judgement = standard(output)
    except (AitError, *REFUSALS) as error:
        checked = replace(checked, verdict=failure_verdict(error), reason=first_line(error))
        return Judged(checked, output, computation.params)
    return Judged(_with(checked, output, judgement), output, computation.params)


def failure_verdict(error: Exception) -> Verdict:
    """SKIPPED where what is known does not determine the result, ERROR for everything else."""
    from ait_llm.opcheck.golden import UnverifiableError

    return Verdict.SKIPPED if isinstance(error, UnverifiableError) else Verdict.ERROR


def misfit(golden: Tensor, mine: Tensor, *, shaped: bool, whole: bool) -> str:
    """What is wrong with the shape or the type of a result, as a clause; empty if nothing is.

    Args:
        shaped, whole: as in :class:`Produced`.
    """
    if golden.numel() != mine.numel() or ((shaped or whole) and golden.shape != mine.shape):
        return f"its shape is {list(mine.shape)}, golden's is {list(golden.shape)}"
    if golden.dtype == mine.dtype:
        return ""
    integers = not golden.dtype.is_floating_point and not mine.dtype.is_floating_point
    if integers and not whole and golden.dtype.itemsize == mine.dtype.itemsize:
        return ""  # bool, int8 and uint8, or a signed and an unsigned type, hold the same numbers
    names = (str(t.dtype).removeprefix("torch.") for t in (mine, golden))
    return "its data type is {}, golden's is {}".format(*names)


def measured(base: Checked, output: Output, metrics: Sequence[str]) -> Checked:
    """The manual's columns for one output; empty for types that the manual has no level for."""
    errors = errors_of(output)
    level = errors.level
    rate = None if level is None else errors.rate(absolute=level.absolute)
    checked = replace(base, rate=rate, max_relative=errors.max_relative)
    if "abs" in metrics:
        abs_rate = None if level is None else errors.rate(absolute=True)
        checked = replace(checked, abs_rate=abs_rate, max_absolute=errors.max_absolute)
    if "cos_sim" in metrics:
        checked = replace(checked, cosine=cosine_similarity(output))
    if "kl" in metrics:
        checked = replace(checked, kl=kl_divergence(output))
    return checked


def _with(checked: Checked, output: Output, judgement: Judgement) -> Checked:
    verdict = Verdict.PASS if judgement.passed else Verdict.FAIL
    checked = replace(
        checked,
        verdict=verdict,
        limit=judgement.limit,
        reason=judgement.reason,
        values=dict(judgement.values),
    )
    if judgement.passed or judgement.first_bad is None or not output.golden.numel():
        return checked
    place = judgement.first_bad
    golden = float(output.golden.reshape(-1)[place])
    mine = float(output.mine.reshape(-1)[place])
    index = index_of(place, output.golden.shape)
    whose = "dumped" if checked.path else "computed"
    where = f"first at {list(index)}: golden {golden:.6g}, {whose} {mine:.6g}"
    return replace(
        checked,
        reason=f"{judgement.reason}; {where}",
        first_bad=index,
        golden_value=golden,
        mine_value=mine,
    )


def index_of(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of a flat place in a shape."""
    index = []
    for size in reversed(shape):
        place, at = divmod(place, size)
        index.append(at)
    return tuple(reversed(index))
