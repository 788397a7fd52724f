"""What a PyTorch program would leave: one run that notes sizes, as ``survey.jsonl`` has them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.errors import FormatError

SURVEY_FILE = "survey.jsonl"
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class CallSize:
    """A call of a module or operator, or the weights of a model.

    Attributes:
        path: ``root.model.layers.0.mlp``, of an operator with its name at the end.
        type: class of the module, name of the operator, or ``weights``.
        step, call: generation step, and number of the call within it.
        folder: where its files go, below ``torch_tensors``.
        is_operator: it is an operator.
        line: its line in the ledger, without what is known only after a capture.
    """

    path: str
    type: str
    step: int
    call: int
    folder: str
    is_operator: bool
    line: Mapping[str, Any]

    @property
    def is_weights(self) -> bool:
        """True for the parameters and buffers of a model."""
        return self.type == "weights"


@dataclass(frozen=True, slots=True)
class TensorEvent:
    """A capture comes by a tensor.

    Attributes:
        call: index among the calls of the process.
        name: file stem.
        fields: its type and shape in a table of statistics.
        data: bytes of its elements.
        file_bytes: bytes of its file.
        slot, value: see :class:`ait_llm.dump.pytorch.survey.SizeSurvey`.
    """

    call: int
    name: str
    fields: str
    data: int
    file_bytes: int
    slot: int | None
    value: int | None


@dataclass(frozen=True, slots=True)
class Forget:
    """A capture forgets what it saved; one without operators only where ``always``."""

    always: bool


@dataclass(slots=True)
class TorchProcessSizes:
    """One process.

    Attributes:
        name: ``{device}_{PID}``.
        calls: calls at the steps that were looked at, by the order in which they began.
        events: in the order in which a capture saves.
        steps: steps of the model that had most of them; None if that is not known.
        trees: sizes of ``model_tree.json`` files.
        frame: bytes of lines of the ledger that belong to no call.
    """

    name: str
    calls: dict[int, CallSize] = field(default_factory=dict)
    events: list[TensorEvent | Forget] = field(default_factory=list)
    steps: int | None = None
    trees: list[int] = field(default_factory=list)
    frame: int = 0

    @property
    def on_host(self) -> bool:
        """True if its tensors are on the host, or on no device at all."""
        return self.name.startswith(("cpu", "meta"))


def read_torch_survey(folder: Path) -> list[TorchProcessSizes]:
    """Read what the processes of a run noted below ``folder/ait_dump``.

    Raises:
        FormatError: nothing was noted, or it is damaged.
    """
    root = folder / "ait_dump"
    processes = []
    for path in sorted((root / "torch_tensors").glob(f"*/{SURVEY_FILE}")):
        process = TorchProcessSizes(path.parent.name)
        _read_ledger(process, root / "ledger" / f"{process.name}.jsonl")
        for line in _lines(path):
            _add(process, line, path)
        process.trees = [each.stat().st_size for each in path.parent.glob("model_tree*.json")]
        processes.append(process)
    if not any(process.calls for process in processes):
        raise FormatError(folder, "nothing was captured")
    return processes


def csv_cell(text: str) -> str:
    """``text`` as a capture writes it into a cell of CSV."""
    if any(each in text for each in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def line_bytes(line: Mapping[str, Any]) -> int:
    """Bytes of a line of a ledger."""
    return len(_ENCODER.encode(line)) + 1


def _add(process: TorchProcessSizes, line: Any, path: Path) -> None:
    try:
        kind, *rest = line
        if kind == "t":
            order, name, dtype, shape, data, file_bytes, slot, value = rest
            fields = f"{dtype},{csv_cell(','.join(map(str, shape)))}"
            event = TensorEvent(order, name, fields, data, file_bytes, slot, value)
            if order in process.calls:
                process.events.append(event)
        elif kind == "f":
            process.events.append(Forget(always=not rest[0]))
        elif kind == "s":
            process.steps = max(process.steps or 0, int(rest[1]))
    except (TypeError, ValueError) as error:
        raise FormatError(path, f"a line is not understood ({error})") from None


def _read_ledger(process: TorchProcessSizes, path: Path) -> None:
    for line in _lines(path):
        if not isinstance(line, dict) or line.get("kind") != "op":
            process.frame += line_bytes(line)
            continue
        path_of_call, type_name = str(line["op"]), str(line["type"])
        process.calls[int(line["order"])] = CallSize(
            path_of_call,
            type_name,
            int(line["step"]),
            int(line["call"]),
            str(line["path"]),
            is_operator="." in type_name and path_of_call.endswith(f".{type_name}"),
            line=line,
        )


def _lines(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                try:
                    yield json.loads(text)
                except ValueError:
                    raise FormatError(path, f"line {number} is not JSON") from None
    except OSError as error:
        raise FormatError(path, f"cannot be read ({error.strerror})") from None
