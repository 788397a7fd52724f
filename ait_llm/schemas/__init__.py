"""What our JSON outputs are called, in which version they are, and their JSON Schemas.

Every JSON object that a command prints begins with ``schema`` and ``version``. A version grows when
a member is taken away or means something else; new members come without a new version. The files
beside this module are JSON Schemas (draft 2020-12), one for each output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ait_llm.core import Registry

VERSIONS: Mapping[str, int] = {
    "api-check": 1,
    "api-precision-compare": 1,
    "attach": 1,
    "bisect": 1,
    "compare": 1,
    "compare-api": 1,
    "compare-ranks": 1,
    "compare-result": 1,
    "convert": 1,
    "doctor": 1,
    "dump": 1,
    "errcheck": 1,
    "errcheck-report": 1,
    "explain": 1,
    "export": 1,
    "golden": 1,
    "invariant": 1,
    "transplant": 1,
    "tokens": 1,
    "merge-result": 1,
    "opcheck": 1,
    "opcheck-journal": 1,
    "opcheck-report": 1,
    "opcheck-self-test": 1,
    "plan": 1,
    "replay": 1,
    "repro": 1,
    "show": 1,
    "show-operation": 1,
    "show-pass": 1,
}
"""Versions by name."""

_names: Registry[str] = Registry("schema")
for _name in VERSIONS:
    _names.register(_name)(_name)


def identity(name: str) -> dict[str, Any]:
    """The first members of an object: ``{"schema": "ait-llm.replay", "version": 1}``."""
    return {"schema": f"ait-llm.{name}", "version": VERSIONS[name]}


def read_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an output.

    Raises:
        UnknownNameError: there is none of that name.

    Example:
        >>> from ait_llm.schemas import read_schema
        >>> read_schema("replay")["$id"]
        'ait-llm.replay/1'
    """
    text = files(__name__).joinpath(f"{_names.get(name)}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
