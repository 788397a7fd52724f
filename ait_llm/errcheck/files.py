"""Result files: one text per process, as the probe writes it, and everything as JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ait_llm.errcheck.result import ErrcheckResult
from ait_llm.errors import UsageError

SUMMARY = "ait_overflow_res.json"
_NAME = re.compile(r"ait_overflow_res_(\d+)\.txt")
_LINE = "Overflow detected! Operator name: "


def reported_operator(name: str) -> str:
    """The operation of a kernel as ATB reports it: ``LinearOperation_2_0:MatMulKernel``."""
    return name.partition(":")[0]


def move_reports(source: Path, target: Path) -> dict[int, tuple[str, ...]]:
    """Move the probe's reports into the output; kernels by process id, in the order of reports."""
    found: dict[int, tuple[str, ...]] = {}
    for path in sorted(source.glob("ait_overflow_res_*.txt")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        text = path.read_text("utf-8", "replace")
        found[int(match[1])] = tuple(
            line.removeprefix(_LINE) for line in text.splitlines() if line.startswith(_LINE)
        )
        path.replace(target / path.name)
    return found


def write_files(result: ErrcheckResult, output: Path) -> list[Path]:
    """Write the result files of a check that found something; none for one that did not.

    ``ait_overflow_res_{pid}.txt`` has a line for each operation with an odd output. What the
    library reported of a process stands in its file already and stays there.

    Raises:
        UsageError: the output cannot be written.
    """
    if not result.found:
        return []
    written = [output / f"ait_overflow_res_{pid}.txt" for pid in result.reported]
    try:
        output.mkdir(mode=0o750, parents=True, exist_ok=True)
        for pid, names in result.operators.items():
            reported = result.reported.get(pid, ())
            known = {reported_operator(name) for name in reported}
            lines = [*reported, *(name for name in names if name not in known)]
            path = output / f"ait_overflow_res_{pid}.txt"
            _write(path, "".join(f"{_LINE}{_one_line(name)}\n" for name in lines))
            written.append(path)
        _write(output / SUMMARY, json.dumps(_document(result), indent=2) + "\n")
    except OSError as error:
        raise UsageError(
            f"the results cannot be written to {output} ({error.strerror}); give another folder "
            "with -o"
        ) from error
    return [*dict.fromkeys(written), output / SUMMARY]


def _document(result: ErrcheckResult) -> Mapping[str, object]:
    return {"kind": "errcheck", "schema": 1, **result.as_dict()}


def _one_line(name: str) -> str:
    return "".join(" " if ord(char) < 0x20 else char for char in name)


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole, readable for the group."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
