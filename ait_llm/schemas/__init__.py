"""What our JSON outputs are called, and in which version they are.

Every JSON object that a command prints begins with ``schema`` and ``version``. A version grows when
a member is taken away or means something else; new members come without a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSIONS: Mapping[str, int] = {
    "api-check": 1,
    "api-precision-compare": 1,
    "attach": 1,
    "bisect": 1,
    "compare-api": 1,
    "compare-ranks": 1,
    "compare-result": 1,
    "convert": 1,
    "doctor": 1,
    "dump": 1,
    "errcheck": 1,
    "golden": 1,
    "merge-result": 1,
    "opcheck": 1,
    "opcheck-self-test": 1,
    "plan": 1,
    "replay": 1,
    "repro": 1,
    "show": 1,
    "show-operation": 1,
    "show-pass": 1,
}
"""Versions by name."""


def identity(name: str) -> dict[str, Any]:
    """The first members of an object: ``{"schema": "ait-llm.replay", "version": 1}``."""
    return {"schema": f"ait-llm.{name}", "version": VERSIONS[name]}
