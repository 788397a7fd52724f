"""The settings of an injected capture, as they travel in the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ait_llm.core import StepRange
from ait_llm.errors import UsageError

VARIABLE = "AIT_TORCH_CAPTURE"
SITE_FOLDER = Path(__file__).resolve().parent / "site"


def injection_environment(
    settings: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, str]:
    """Variables to add to a child's environment so that it captures itself.

    Args:
        settings: keyword arguments for :func:`parse_settings`, as JSON values.
        environment: the environment that the child would get; its PYTHONPATH is kept.
    """
    path = environment.get("PYTHONPATH")
    return {
        VARIABLE: json.dumps(dict(settings), sort_keys=True),
        "PYTHONPATH": f"{SITE_FOLDER}:{path}" if path else str(SITE_FOLDER),
    }


def parse_settings(text: str) -> dict[str, Any]:
    """Keyword arguments of ``CaptureOptions`` from the variable's text, but for the selection.

    Raises:
        UsageError: the text is not what :func:`injection_environment` writes.
    """
    try:
        fields = json.loads(text)
        fields["output"] = Path(fields["output"])
        fields["steps"] = StepRange.parse(fields["steps"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{VARIABLE} is not readable ({error}); start through ait llm dump") from error
    return dict(fields)
