"""Facts of a capture that matter elsewhere, and nothing that names a place on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ait_llm.dumps.model import Process

_KEYS = ("producer", "version", "abi", "device", "host", "time", "writer")
# Switches of the libraries that change what is computed; everything else of the environment stays.
_SWITCHES = re.compile(r"(ATB|ASDOPS|ASCEND|LCCL|HCCL|LCAL|INF_NAN|CLOSE_MATMUL|HOSTATB)\w*")
_VERSIONS = re.compile(r"\w*(version|VERSION|soc|SOC)\w*")


def environment_of(process: Process | None) -> dict[str, Any]:
    """What the ledger of a process says about tool, versions, ABI, host and device."""
    if process is None:
        return {}
    header = process.header
    found: dict[str, Any] = {key: header[key] for key in _KEYS if _is_plain(header.get(key))}
    found |= {
        key: value
        for key, value in header.items()
        if key not in found and _VERSIONS.fullmatch(key) and _is_plain(value)
    }
    for section in ("environment", "options", "versions"):
        values = header.get(section)
        if isinstance(values, Mapping):
            kept = {
                key: value
                for key, value in values.items()
                if _is_plain(value) and (section == "versions" or _SWITCHES.fullmatch(str(key)))
            }
            if kept:
                found[section] = kept
    return found


def _is_plain(value: object) -> bool:
    """True for numbers and words; what has a slash may be a path."""
    return isinstance(value, (int, float)) or (
        isinstance(value, str) and value != "" and "/" not in value and "\\" not in value
    )
