"""What ``ait llm errcheck`` says about what it found, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.cli.dump_text import table
from ait_llm.cli.numbers import counted, ranges
from ait_llm.errcheck.result import Checked, ErrcheckResult, Finding, OddTensor, Place

_MOST = 10  # findings in full; the JSON file has all
_TITLES = {
    "born": "born in",
    "leak": "leaks in",
    "own code": "born in",
    "entered": "came in",
    "received": "received",
    "padding": "padding",
    "unread": "unread",
}


def describe_result(result: ErrcheckResult, files: Sequence[Path], following: str | None) -> str:
    """Where something began, what it reached, and how much was checked."""
    lines: list[tuple[str, str]] = []
    if result.exit_code:
        lines.append(("program", f"failed with exit code {result.exit_code}"))
    bad, harmless = result.harmful, [each for each in result.findings if not each.harmful]
    for finding in bad[:_MOST]:
        lines += _finding(finding)
    if len(bad) > _MOST:
        lines.append(("more", f"{counted(len(bad) - _MOST, 'further place')}, see the JSON file"))
    for name in result.unexplained[:1]:
        more = len(result.unexplained) - 1
        lines.append(
            (
                "reported",
                f"{name} overflowed, says the library, and no tensor shows it; the device "
                f"saturates" + (f"; so did {counted(more, 'later kernel')}" if more else ""),
            )
        )
    for finding in harmless[:_MOST]:
        lines += _harmless(finding)
    if len(harmless) > _MOST:
        lines.append(("more", f"{counted(len(harmless) - _MOST, 'place')} as harmless"))
    if result.found or harmless or result.problems or result.exit_code:
        lines.append(("checked", amount(result.checked)))
    if result.found or harmless:
        lines.append(("tokens", _padding(result.checked)))
    lines += [("unknown", text) for text in result.problems]
    if files:
        lines.append(("files", ", ".join(map(str, files))))
    if following is not None:
        lines.append(("next", following))
    head = "ait llm errcheck" if not result.exit_code else "ait llm errcheck: the program failed"
    if result.found:
        places = len(bad) or len(result.unexplained)
        head = f"ait llm errcheck: {counted(places, 'place')} where numbers go wrong"
    elif result.problems:
        head = "ait llm errcheck: incomplete"
    elif not result.exit_code:
        head = "ait llm errcheck: no overflow"
        if not lines:
            head += f" in {amount(result.checked)}"
    return table(head, lines)


def amount(checked: Checked) -> str:
    """``63 operations, 225 tensors, 429337 elements of 2 passes in 1 process``."""
    text = (
        f"{counted(checked.operations, 'operation')}, {counted(checked.tensors, 'tensor')}, "
        f"{counted(checked.elements, 'element')} of {_passes(checked.steps)} in "
        f"{checked.processes} {'process' if checked.processes == 1 else 'processes'}"
    )
    if checked.by_statistics:
        text += f", {checked.by_statistics} tensors by their statistics"
    if checked.narrow:
        text += f"; {checked.narrow} int8 elements at an end of their range, which is no error"
    return text


def next_step(result: ErrcheckResult, command: str | None) -> str | None:
    """The command that tells more, where values would."""
    lacks = [each for each in result.harmful if all(one.first is None for one in each.tensors)]
    if command is None or not lacks or result.checked.padding:
        return None
    step = lacks[0].place.step
    return (
        f"ait llm errcheck --exec {shlex.quote(command)} --values -er {step},{step}: the first "
        "element, and padding"
    )


def _passes(count: int) -> str:
    return "1 pass" if count == 1 else f"{count} passes"


def _padding(checked: Checked) -> str:
    if checked.padding:
        return f"told from padding by {checked.padding}"
    return "padding unknown: nothing that was saved tells it from tokens"


def _place(place: Place) -> str:
    return (
        f"{place.name} (id {place.op_id}), step {place.step}, rank {place.rank}, "
        f"process {place.pid}"
    )


def _finding(finding: Finding) -> Iterator[tuple[str, str]]:
    yield _TITLES[finding.origin], _place(finding.place)
    for tensor in finding.tensors:
        yield "", _tensor(tensor)
    yield "", finding.reason
    if finding.shared:
        yield "", f"and in the same call on rank {ranges(finding.shared)}"
    if len(finding.steps) > 1:
        yield "", f"again at steps {ranges(finding.steps[1:])}"
    yield "", _flow(finding)


def _tensor(tensor: OddTensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    text = f"{tensor.title} {tensor.dtype} [{shape}]: {tensor.kinds}"
    if tensor.first is not None:
        text += f", first at [{', '.join(map(str, tensor.first))}]"
    if tensor.where == "padding":
        return text + ", in padding"
    return text + (", in tokens" if tensor.where == "tokens" else "")


def _flow(finding: Finding) -> str:
    flow = finding.flow
    if not flow.operations:
        return "went nowhere else" + (", it is the last operation" if flow.reached_end else "")
    names = ", ".join(dict.fromkeys(place.name for place in flow.first))
    more = ", …" if flow.operations > len(flow.first) else ""
    text = f"went on through {counted(flow.operations, 'operation')}: {names}{more}"
    if len(flow.ranks) > 1:
        text += f"; on ranks {ranges(flow.ranks)}"
    return text + ("; up to the last operation of a pass" if flow.reached_end else "")


def _harmless(finding: Finding) -> Iterator[tuple[str, str]]:
    odd = "; ".join(f"{tensor.title}: {tensor.kinds}" for tensor in finding.tensors)
    yield _TITLES[finding.origin], f"{_place(finding.place)}: {odd}; {finding.reason}"
