"""What makes the data of the HTML page short: texts are stored once, ranks as differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ait_llm.core.comparison import TensorRecord
from ait_llm.language import translate
from ait_llm.report.jsonl_records import number

Json = Any  # one JSON value


def rounded(value: Any) -> Json:  # numbers, None, reasons
    """Numbers with as many digits as the page shows."""
    if isinstance(value, float):
        return number(float(f"{value:.8g}"))
    return value


class Texts:
    """Numbers for texts and small mappings that many rows share."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {"": 0}
        self.values: list[Json] = [""]

    def text(self, text: str) -> int:
        return self._place(text, text)

    def message(self, text: str) -> int:
        """A text of the tool's own, in the language that is spoken now."""
        place = self._places.get(("message", text))
        if place is None:
            place = self._places["message", text] = self.text(translate(text))
        return place

    def mapping(self, mapping: Mapping[str, Any]) -> int:
        """A mapping as one more text; the same for an equal mapping."""
        value = {key: rounded(item) for key, item in mapping.items()}
        return self._place(tuple(sorted((key, str(item)) for key, item in value.items())), value)

    def value(self, key: Any, value: Json) -> int:  # any hashable key
        """Another value that is stored once for each key."""
        return self._place(key, value)

    def _place(self, key: Any, value: Json) -> int:  # any hashable key
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.values)
            self.values.append(value)
        return place


class Differences:
    """Execution ranks as differences to the one before, which are short: most are 0 or 1."""

    def __init__(self) -> None:
        self._last = 0

    def of(self, record: TensorRecord | None) -> int | None:
        """How much later a tensor's operation ran than the one asked about before."""
        if record is None:
            return None
        step, self._last = record.order - self._last, record.order
        return step
