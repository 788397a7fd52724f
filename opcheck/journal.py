"""The results as JSON lines, written while checking, from which a killed check is resumed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ait_llm.core.comparison import Verdict
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats.opening import open_regular
from ait_llm.opcheck.outcome import Checked, Rerun
from ait_llm.report.conforming import check_fields
from ait_llm.report.files import FILE_MODE

SCHEMA = 1
_MAX_LINE_BYTES = 16 << 20
_SPECIAL = frozenset({"nan", "inf", "-inf"})
# Fields that hold a number, of a result and of its rerun.
_NUMBERS = frozenset(
    {"rate", "max_relative", "abs_rate", "max_absolute", "cosine", "kl"}
    | {"golden_value", "mine_value"}
)
# What a line of another kind, or with numbers such as 1e999 in place of counts, makes Python raise.
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
Key = tuple[int, int, int, str, str]


def key_of(item: Checked) -> Key:
    """What the results of one execution of one operator have in common."""
    return item.device, item.pid, item.step, item.op_id, item.op_type


def as_record(item: Checked) -> dict[str, Any]:
    """A result in JSON types; numbers that are not finite become text."""
    record = {key: value for key, value in asdict(item).items() if value not in (None, "", {})}
    return _plain(record)  # type: ignore[no-any-return]  # a dict stays one


def _plain(value: Any) -> Any:  # any JSON value
    if isinstance(value, Verdict):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def from_record(record: Mapping[str, Any]) -> Checked:
    """The result that :func:`as_record` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    fields = _restored(record)
    fields["verdict"] = Verdict(fields["verdict"])
    for name in ("shape", "first_bad", "stamp"):
        if name in fields:
            fields[name] = tuple(int(part) for part in fields[name])
    if "values" in fields:
        fields["values"] = {key: _number(each) for key, each in fields["values"].items()}
    if "rerun" in fields:
        rerun = _restored(fields["rerun"])
        rerun["verdict"] = Verdict(rerun["verdict"])
        check_fields(Rerun, rerun)
        fields["rerun"] = Rerun(**rerun)
    check_fields(Checked, fields)
    return Checked(**fields)


def _restored(record: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _number(value) if k in _NUMBERS else value for k, value in record.items()}


def _number(value: Any) -> Any:  # any JSON value
    return float(value) if isinstance(value, str) and value in _SPECIAL else value


class Journal:
    """Writes the results of each operator when it is done; a context manager.

    Args:
        path: file to create.
        options: what the results depend on; a resumed check must have the same.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self.path = path
        self.operators = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file: IO[str] = os.fdopen(os.open(path, flags, FILE_MODE), "w", encoding="ascii")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; choose a folder with --output") from error
        self._write({"kind": "header", "schema": SCHEMA, "options": dict(options)})

    def add(self, items: list[Checked]) -> None:
        """Write all results of one operator.

        Raises:
            UsageError: the disk does not take it.
        """
        self._write({"kind": "operator", "outputs": [as_record(item) for item in items]})
        self.operators += 1

    def _write(self, data: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(data, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> UsageError:
        return UsageError(f"{self.path}: cannot be written ({error.strerror})")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._file.close()  # writes what the disk did not take, once more
        except OSError as full:
            if error is None:
                raise self._not_written(full) from full


def read_journal(path: Path, options: Mapping[str, Any]) -> dict[Key, list[Checked]]:
    """The results of a check that was interrupted; a last line that was cut off is left out.

    Raises:
        FormatError: the file is no journal.
        UsageError: it belongs to a check with other options.
    """
    found: dict[Key, list[Checked]] = {}
    with open_regular(path) as file:
        number = 0
        while raw := file.readline(_MAX_LINE_BYTES + 1):
            number += 1
            if not raw.endswith(b"\n"):
                break
            try:
                data = json.loads(raw)
                if number == 1:
                    _check_header(path, data, options)
                else:
                    items = [from_record(record) for record in data["outputs"]]
                    found[key_of(items[0])] = items
            except _DAMAGED:
                raise FormatError(
                    path, f"line {number} is not of an opcheck journal", "Give the jsonl file"
                ) from None
    if not number:
        raise FormatError(path, "is empty", "Check again without --resume")
    return found


def _check_header(path: Path, data: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    if data["kind"] != "header" or data["schema"] != SCHEMA:
        raise ValueError
    theirs = data["options"]
    for name, value in json.loads(json.dumps(dict(options))).items():
        if theirs.get(name) != value:
            raise UsageError(
                f"{path}: that check had {name} {theirs.get(name)!r}, this one has {value!r}; "
                "give the same options, or check again without --resume"
            )
