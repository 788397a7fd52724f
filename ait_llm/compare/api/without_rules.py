"""Calls that the rules leave alone, because their values mean nothing."""

from __future__ import annotations

# Memory without values, copies, and writes into part of a tensor.
_IGNORED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_with_format",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "numpy",
        "to",
        "__setitem__",
    }
)
# Their inputs are receive buffers.
_OUTPUT_IN_INPUTS = frozenset(
    {"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"}
)


def function_of(record: str) -> str:
    """``linear`` of ``Functional.linear.0.forward``; empty for modules."""
    parts = record.split(".")
    return parts[1] if len(parts) > 3 and parts[0] != "Module" else ""


def is_ignored(record: str) -> bool:
    """True if no rule applies to a call."""
    return function_of(record) in _IGNORED


def looks_at_inputs_only(record: str) -> bool:
    """True if no rule that sets outputs against inputs applies."""
    return function_of(record) in _OUTPUT_IN_INPUTS
