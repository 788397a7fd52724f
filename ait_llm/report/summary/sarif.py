"""Findings that know a line of a source file as SARIF 2.1.0, for code scanning.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from ait_llm import __version__
from ait_llm.report.summary.github import below
from ait_llm.report.summary.record import TITLES, Finding, SourceLine, Summary
from ait_llm.report.wording import printable

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
ROOT = "SRCROOT"
_LEVELS = {"error": "error", "warning": "warning", "notice": "note"}


def sarif(summary: Summary, root: str) -> dict[str, Any]:
    """A log with one run.

    Args:
        summary: what was found; findings without a line of source are counted only.
        root: folder from which files are named, such as that of the repository.
    """
    placed = [each for each in summary.findings if each.source is not None]
    rules = list(dict.fromkeys(each.rule for each in placed))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "ait-llm",
                        "semanticVersion": __version__,
                        "rules": [_rule(name) for name in rules],
                    }
                },
                "automationDetails": {"id": f"ait-llm/{summary.command}/"},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {ROOT: {"description": {"text": "the source repository"}}},
                "invocations": [
                    {
                        "executionSuccessful": summary.exit_code in (0, 1),
                        "exitCode": summary.exit_code,
                    }
                ],
                "results": [
                    _result(summary.command, each, each.source, rules.index(each.rule), root)
                    for each in placed
                    if each.source is not None
                ],
                "properties": {"findingsWithoutSource": len(summary.findings) - len(placed)},
            }
        ],
    }


def _rule(name: str) -> dict[str, Any]:
    return {"id": name, "shortDescription": {"text": TITLES[name]}}


def _result(
    command: str, finding: Finding, source: SourceLine, rule: int, root: str
) -> dict[str, Any]:
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": _artifact(below(source, root).file),
            "region": {"startLine": max(1, source.line)},
        },
        "logicalLocations": [{"fullyQualifiedName": printable(finding.where)}],
    }
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": _LEVELS[finding.level],
        "message": {"text": printable(f"{finding.place}: {finding.text}")},
        "locations": [place],
        "partialFingerprints": {"aitFinding/v1": finding.fingerprint(command)},
    }


def _artifact(path: str) -> dict[str, str]:
    """A file as a URI: from the root where it lies below it, else absolute."""
    if os.path.isabs(path):  # noqa: PTH117  # a path of text
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(str(PurePosixPath(path))), "uriBaseId": ROOT}
