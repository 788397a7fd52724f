"""What a ``.pkl`` file says about one call, as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ait_llm.dumps.ptdbg_lines import PtdbgLine, read_lines


def describe_call(path: Path, prefix: str) -> Iterator[str]:
    """The call stack and the statistics of the items whose names begin so, line by line.

    Args:
        path: of the ``.pkl`` file.
        prefix: ``Torch_norm_1_forward``.

    Raises:
        FormatError: the file is damaged.
    """
    for line in read_lines(path):
        name = str(line.fields[0])
        if not name.startswith(prefix):
            continue
        if line.part == "stack_info":
            yield f"\nTrace back({name}):"
            yield from _frames(line)
        else:
            yield f"\nStatistic Info: {name}"
            yield from _statistics(line)


def _frames(line: PtdbgLine) -> Iterator[str]:
    frames = line.fields[-1] if isinstance(line.fields[-1], list) else []
    for frame in reversed(frames):
        path, number, function, code = (*map(str, frame), "", "", "", "")[:4]
        yield f'  File "{path}", line {number}, in {function}'
        yield f"    {code}"


def _statistics(line: PtdbgLine) -> Iterator[str]:
    _, _, _, dtype, shape, summary = (*line.fields, None, None, None, None, None)[:6]
    values = summary if isinstance(summary, list) else []
    high, low, mean = (*values, None, None, None)[:3]
    for name, value in (
        ("shape", shape),
        ("dtype", dtype),
        ("max", high),
        ("min", low),
        ("mean", mean),
    ):
        yield f"  {name}: {value}"
