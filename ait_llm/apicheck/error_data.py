"""Inputs and outputs of calls that do not pass, as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ait_llm.apicheck.judging import leaves
from ait_llm.report.files import make_folder, replacing


def save_error_data(folder: Path, name: str, groups: Mapping[str, Any]) -> None:
    """Write the tensors of a call: ``{name}.forward.output.bench.0.pt``.

    Args:
        folder: created if needed.
        name: of the call; the check has found it in its list of functions.
        groups: part of the file's name, and the values.

    Raises:
        UsageError: a file cannot be written.
    """
    import torch

    make_folder(folder)
    for group, values in groups.items():
        for place, value in leaves(values):
            if isinstance(value, torch.Tensor):
                with replacing(folder / f"{name}.{group}.{place}.pt", binary=True) as file:
                    torch.save(value.detach().cpu().contiguous(), file)
