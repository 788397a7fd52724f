"""Several processes side by side, so that collective operators get the inputs of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ait_llm.errors import AitError
from ait_llm.opcheck.cases import REFUSALS, first_line
from ait_llm.replay.execution import Steps, Together

# What calls of one group have in common.
_GROUP = ("rankSize", "rankRoot", "commDomain", "backend", "allReduceType", "type")
_MESSAGES = frozenset({"SendOperation", "RecvOperation"})


def run_together(processes: Sequence[Steps]) -> None:
    """Run processes to their ends.

    A collective call whose other ranks never come is told so and goes on without.

    Raises:
        AitError: as the processes do.
    """
    waiting: dict[int, Together] = {}
    for number, process in enumerate(processes):
        _advance(number, process, None, waiting)
    while waiting:
        answers = _answers(waiting)
        for number, answer in answers.items():
            del waiting[number]
            _advance(number, processes[number], answer, waiting)


def _advance(number: int, process: Steps, answer: Any, waiting: dict[int, Together]) -> None:
    """Let a process go on to its next collective call or its end."""
    with suppress(StopIteration):
        waiting[number] = next(process) if answer is None else process.send(answer)


def _answers(waiting: dict[int, Together]) -> dict[int, Any]:  # results, or reasons
    """Results of groups that are complete; where none is, why they cannot be."""
    import torch

    from ait_llm.opcheck.golden import GOLDEN

    groups: dict[Any, dict[int, int]] = {}
    for number, call in waiting.items():
        groups.setdefault(_group(call), {})[int(call.params.get("rank", -1))] = number
    answers: dict[int, Any] = {}
    for ranks in groups.values():
        size = int(waiting[next(iter(ranks.values()))].params["rankSize"])
        if sorted(ranks) != list(range(size)):
            continue
        calls = [waiting[ranks[rank]] for rank in range(size)]
        compute = calls[0].golden.compute_ranks
        assert compute is not None
        try:
            with torch.no_grad():
                results = compute(
                    [call.inputs for call in calls], [call.params for call in calls], GOLDEN
                )
            answers |= {ranks[rank]: result for rank, result in enumerate(results)}
        except (AitError, *REFUSALS) as error:
            answers |= dict.fromkeys(ranks.values(), first_line(error))
    if answers:
        return answers
    for ranks in groups.values():
        for number in ranks.values():
            call = waiting[number]
            reason = (
                f"its result depends on all {call.params['rankSize']} ranks, and not all are there"
            )
            if call.unit.type in _MESSAGES:
                reason = "messages between two ranks are not replayed"
            answers[number] = reason
    return answers


def _group(call: Together) -> tuple[Any, ...]:
    own = tuple(str(call.params.get(name)) for name in _GROUP)
    return (call.unit.step, call.unit.op_id, call.unit.type, *own)
