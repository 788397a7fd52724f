"""The command that looks closer at what a comparison found."""

from __future__ import annotations

import shlex

from ait_llm.core.comparison import Origin, Report
from ait_llm.storage import is_url

_OWN_CODE = "code between modules"
_OPERATOR = ".aten."
# Kinds of dumps that a capsule can be made of.
_PACKED = ("atb", "torch")


def next_command(report: Report) -> str:
    """The command that helps most with the first origin; empty if none does.

    An operator whose own error was measured can be packed into a capsule that shows it. The code of
    a module is seen in a capture of operators. Candidates are told apart by computing all of them.

    Args:
        report: of a comparison that ended.
    """
    if not report.origins:
        return ""
    first = report.origins[0]
    is_here = report.mine.kind in _PACKED and not is_url(report.mine.path)
    if first.introduced is not None and is_here:
        words = ["ait", "llm", "repro", "--dump", report.mine.path, "--op", _name(report, first)]
        return shlex.join([*words, "--step", str(first.step), "-o", "case.zip"])
    if first.kind == _OWN_CODE and report.mine.kind == "torch" and not _has_operators(report):
        return 'ait llm dump --type torch-op --weights --exec "python run.py" -o operators'
    if first.candidates and not report.options.get("deep"):
        words = ["ait", "llm", "compare", "-gp", report.golden.path, "-mp", report.mine.path]
        return shlex.join([*words, "--deep"])
    return ""


def _name(report: Report, origin: Origin) -> str:
    """What ``repro`` calls an operator."""
    return origin.op_id if report.mine.kind == "atb" and origin.op_id else origin.op


def _has_operators(report: Report) -> bool:
    return any(
        item.mine is not None and _OPERATOR in f"{item.mine.op}." for item in report.comparisons
    )
