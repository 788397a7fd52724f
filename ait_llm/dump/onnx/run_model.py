"""Runs a model of ONNX once: ``python -m ait_llm.dump.onnx.run_model MODEL INPUTS``.

INPUTS is an ``.npz`` file with an array for each input of the model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.core.optional import import_optional
from ait_llm.errors import AitError, FormatError


def main(model: str, inputs: str) -> None:
    """Run the model and say what it returns.

    Raises:
        FormatError: a file cannot be read, or they do not fit each other.
        MissingDependencyError: ONNX Runtime is not installed.
    """
    runtime = import_optional("onnxruntime", "running a model of ONNX")
    arrays = _arrays(Path(inputs))
    try:
        session = runtime.InferenceSession(model, providers=runtime.get_available_providers())
    except Exception as error:
        raise FormatError(model, f"is no model that ONNX Runtime loads: {_line(error)}") from error
    wanted = [each.name for each in session.get_inputs()]
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise FormatError(
            inputs,
            f"has no array {missing[0]!r}, which the model reads",
            f"Save one for each of {', '.join(wanted)}",
        )
    try:
        results = session.run(None, {name: arrays[name] for name in wanted})
    except Exception as error:
        raise FormatError(inputs, f"does not fit the model: {_line(error)}") from error
    for output, result in zip(session.get_outputs(), results, strict=True):
        shape = list(getattr(result, "shape", []))
        sys.stdout.write(f"{output.name} {getattr(result, 'dtype', '')} {shape}\n")


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError) as error:
        raise FormatError(path, f"is no .npz file of arrays: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except AitError as failure:
        sys.stderr.write(f"ait: {failure}\n")
        sys.exit(failure.exit_code)
