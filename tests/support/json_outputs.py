"""Every JSON object that a command prints in a test is held to its schema."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema

from ait_llm.cli import machine
from ait_llm.schemas import read_schema

_json_line = machine.json_line


@cache
def validator(name: str) -> Any:
    """Of one schema; strict about members that it does not know."""
    return jsonschema.Draft202012Validator(read_schema(name))


def check(name: str, value: Any) -> None:
    """Raise unless a value is what its schema says."""
    validator(name).validate(value)


def checked_line(name: str, data: Any) -> str:
    """As :func:`ait_llm.cli.machine.json_line`, held to the schema."""
    line = _json_line(name, data)
    check(name, json.loads(line))
    return line
