"""The vendor's own results of recorded cases, judged as the outputs of a dump are."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ait_llm.core.comparison import Verdict
from ait_llm.judge.outputs import Judged, Produced, judge_outputs, remembered
from ait_llm.judge.standards import standards
from ait_llm.opcheck.golden import Result, golden_ops
from ait_llm.opcheck.outcome import Checked
from ait_llm.opcheck.selftest.recorded import Recorded


def judged(one: Recorded, standard: str = "contract") -> list[Judged]:
    """The verdicts on what the vendor's generator, not ours, made of a case."""
    inputs = [None if tensor.numel() == 0 else tensor for tensor in one.inputs]
    base = Checked(op_id="0", op_type=one.op, verdict=Verdict.SKIPPED, path=one.case)
    return judge_outputs(
        golden_ops.get(one.op),
        inputs,
        one.params,
        _produced(one, one.compute()),
        standards.get(standard),
        base,
        run=remembered(lambda params, how: replace(one, params=params).compute(how)),
    )


def _produced(one: Recorded, ours: Result) -> Produced:
    """Its outputs, or inputs as it left them; goldens are wider than outputs are."""
    theirs = list(one.golden)
    if ours.outputs:
        pairs = zip(theirs, ours.outputs, strict=False)
        return Produced({i: _as(given, own) for i, (given, own) in enumerate(pairs)}, {})
    changed = sorted(ours.updated_inputs)
    if len(theirs) == len(one.inputs):  # all that went in
        theirs = [theirs[index] for index in changed]
    pairs = zip(changed, theirs, strict=True)
    return Produced({}, {i: _as(given, ours.updated_inputs[i]) for i, given in pairs})


def _as(given: Tensor, own: Tensor) -> Tensor:
    return given.reshape(own.shape).to(own.dtype)
