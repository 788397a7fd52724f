"""API-level dumps of given calls, made by hand: what was called with what, nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from api_dumps import write_dump


class RecordedCalls:
    """Calls that become a ``dump.json``.

    Args:
        root: folder of the run.
        values: save the tensors; otherwise only their statistics are recorded.
        rank: of the process.
    """

    def __init__(self, root: Path, *, values: bool = True, rank: int = 0) -> None:
        self._root = root
        self._values = values
        self._rank = rank
        self._records: dict[str, Any] = {}
        self._tensors: dict[str, torch.Tensor] = {}

    def add(self, name: str, *args: Any, gradients: Any = None, **kwargs: Any) -> RecordedCalls:
        """A call, ``Torch.add.0``; with gradients of its outputs it has a backward record."""
        forward = f"{name}.forward"
        self._records[forward] = {
            "input_args": [
                self._json(value, f"{forward}.input.{i}") for i, value in enumerate(args)
            ],
            "input_kwargs": {
                key: self._json(value, f"{forward}.input.{key}") for key, value in kwargs.items()
            },
            "output": [],
        }
        if gradients is not None:
            backward = f"{name}.backward"
            arriving = [
                self._json(value, f"{backward}.input.{i}") for i, value in enumerate(gradients)
            ]
            self._records[backward] = {"input": arriving, "output": []}
        return self

    def write(self) -> Path:
        """Write the dump; returns the JSON file."""
        return write_dump(
            self._root,
            self._records,
            rank=self._rank,
            task="tensor" if self._values else "statistics",
            tensors=self._tensors,
        )

    def _json(self, value: Any, stem: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, stem)
        if isinstance(value, (list, tuple)):
            return [self._json(each, f"{stem}.{i}") for i, each in enumerate(value)]
        if isinstance(value, dict) or value is None:
            return value  # JSON already
        if isinstance(value, torch.dtype):
            return {"type": "torch.dtype", "value": str(value)}
        if isinstance(value, slice):
            return {"type": "slice", "value": [value.start, value.stop, value.step]}
        return {"type": type(value).__name__, "value": value}

    def _tensor(self, value: torch.Tensor, stem: str) -> dict[str, Any]:
        plain = value.detach()
        found: dict[str, Any] = {
            "type": "torch.Tensor",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "Max": plain.max().item() if plain.numel() and not plain.is_complex() else None,
            "Min": plain.min().item() if plain.numel() and not plain.is_complex() else None,
            "requires_grad": value.requires_grad,
        }
        if self._values:
            found["data_name"] = f"{stem}.pt"
            self._tensors[f"{stem}.pt"] = plain.clone()
        return found
