"""The use case repro: one operator of a dump becomes one zip file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ait_llm.capsule.api import api_case
from ait_llm.capsule.archive import write_capsule
from ait_llm.capsule.atb import atb_case
from ait_llm.capsule.shrink import shrink
from ait_llm.capsule.tolerance import tolerance_of
from ait_llm.capsule.torch_cases import torch_case
from ait_llm.core.optional import import_optional
from ait_llm.dumps import ApiDump, AtbDump, open_dump
from ait_llm.errors import UsageError
from ait_llm.opcheck.plugins import load_entry_points
from ait_llm.storage import local_path

MAX_BYTES = 4 << 30
_TORCH = ("torch", "fx")


@dataclass(frozen=True, slots=True)
class Capsule:
    """A capsule that was written.

    Attributes:
        path: of the zip file.
        title: what it shows.
        passed: the output is within its limits.
        text: the numbers behind that.
        byte_count: of its inputs and the dumped output.
        shrunk: what was made smaller; None unless asked for.
    """

    path: Path
    title: str
    passed: bool
    text: str
    byte_count: int
    shrunk: Mapping[str, Any] | None = None


def make_capsule(
    path: Path | str,
    op: str,
    out: Path | str,
    *,
    step: int | None = None,
    device: int | None = None,
    output: str | None = None,
    smaller: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Capsule:
    """Write one operator of a dump as a zip file that shows its error without this package.

    Args:
        path: a dump with values: of the acceleration library, of operators, modules or functions of
            PyTorch, or of nodes of FX graphs.
        op: id of an operator, ``2_1_3``; name of an operator, module or node,
            ``root.mlp.aten.mm.default``; name of a call, ``Functional.linear.3.forward``.
        out: the zip file.
        step, device: which execution; None for the first that fails, else the first.
        output: ``outtensor1``; None for the first that fails, else the first.
        smaller: make shapes and values as small as they can be while the error stays.
        max_bytes: largest size of the operator's tensors.

    Raises:
        UsageError: there is no such operator, or no golden one; the file cannot be written.
        FormatError: no dump, or it is damaged.
        MissingDependencyError: torch is not installed.
    """
    import_optional("torch", "computing golden operators")
    load_entry_points()
    dump = open_dump(path)
    if isinstance(dump, AtbDump):
        origin = atb_case(
            local_path(path), op, step=step, device=device, output=output, max_bytes=max_bytes
        )
    elif isinstance(dump, ApiDump):
        origin = api_case(dump, op, step=step, device=device, output=output, max_bytes=max_bytes)
    elif dump.kind in _TORCH:
        origin = torch_case(dump, op, step=step, device=device, output=output, max_bytes=max_bytes)
    else:
        raise UsageError(
            f"{path}: this is a {dump.kind} dump; capsules are made of operators of the "
            "acceleration library, of operators, modules and functions of PyTorch, and of nodes of "
            "FX graphs"
        )
    shrunk: Mapping[str, Any] | None = None
    if smaller:
        smallest = shrink(origin.case)
        origin, shrunk = replace(origin, case=smallest.case), smallest.facts()
    judged = origin.case.evaluated()
    tolerance = tolerance_of(judged)
    found = tolerance.judge(judged)
    verdict = {"verdict": "FAIL" if found.check else "PASS", "reason": found.text}
    write_capsule(Path(out), origin, judged, tolerance, verdict, shrunk)
    return Capsule(
        Path(out),
        origin.case.title,
        not found.check,
        found.text,
        origin.case.byte_count,
        shrunk,
    )
