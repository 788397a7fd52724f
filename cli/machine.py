"""The line that ``--json`` prints: what it is, and in which version, is its first two members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from ait_llm.naming import shown
from ait_llm.schemas import identity


def emit(name: str, data: Mapping[str, Any], *, lead: str = "") -> None:
    """Print a result for machines on stdout, as one line.

    Args:
        name: of its schema, see :mod:`ait_llm.schemas`.
        data: the result in JSON types.
        lead: what comes before, such as a line break behind the output of a program.
    """
    click.echo(lead + shown(json_line(name, data)))


def json_line(name: str, data: Mapping[str, Any]) -> str:
    """The line."""
    return json.dumps({**identity(name), **data}, default=str)
