"""What the graph before compilation says of values that no file of a dump holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ait_llm.dumps.fx_nodes import GraphValue
from ait_llm.dumps.model import GraphRun

if TYPE_CHECKING:
    import torch

Made = tuple[str, int]
"""A node or input of the graph, and which of its results."""


def described(run: GraphRun, made: Made) -> GraphValue | None:
    """Type and dims of a value; None where the graph does not tell."""
    node = run.nodes.get(made[0])
    if node is None:
        return run.sources.get(made[0])
    return node.values[made[1]] if made[1] < len(node.values) else None


def empty_value(run: GraphRun, made: Made) -> torch.Tensor | None:
    """A tensor without elements, which no capture saves; None for any other value."""
    import torch

    value = described(run, made)
    if value is None or 0 not in value.dims:
        return None
    dtype = getattr(torch, value.dtype, None)
    dims = [dim for dim in value.dims if isinstance(dim, int)]
    if not isinstance(dtype, torch.dtype) or len(dims) != len(value.dims):
        return None
    return torch.empty(dims, dtype=dtype)
