"""Codes of errors, which stay with their messages while these are reworded, moved and removed."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from error_templates import ErrorTemplate

LETTERS = {
    "Command line": "U",
    "Capture": "C",
    "Starting programs under the probe": "P",
    "Bisection": "B",
    "Overflow check": "V",
    "Planning a capture": "L",
    "Comparison": "D",
    "Work on other machines": "W",
    "Tools for agents": "T",
    "Dumps that are addressed by URL": "S",
    "Matching": "M",
    "Metrics and tolerances": "Q",
    "API check": "A",
    "Capsules of one operator": "K",
    "Conversion of files": "X",
    "Operator check": "O",
    "Golden operators": "G",
    "Replay": "Y",
    "The embedded acceleration library": "H",
    "Diagnosis": "N",
    "Reading dumps": "I",
    "Graphs": "J",
    "Tensor files": "F",
    "Reports": "Z",
    "Ids, ranges and packages": "E",
}
"""By area, each once."""
_OTHER = "R"
_PLACE = re.compile(r"(?<!\{)\{[^{}]+\}(?!\})")
_ALIKE = 0.7  # of 1: the same message in other words

Record = tuple[str, int, str, str]  # class, exit code, area, message


@dataclass
class Codes:
    """All codes.

    Attributes:
        records: by code.
        next: the next number of each letter; numbers of messages that went are not used again.
    """

    records: dict[str, Record] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Codes:
        """Those of a file; none where there is no file yet."""
        if not path.exists():
            return cls()
        content = json.loads(path.read_text("utf-8"))
        return cls({code: tuple(each) for code, each in content["codes"].items()}, content["next"])

    @classmethod
    def of(
        cls,
        templates: Iterable[ErrorTemplate],
        earlier: Codes | None = None,
        more: Iterable[Record] = (),
    ) -> Codes:
        """Codes of all messages that end a command, as earlier ones where there were any.

        Args:
            templates: all messages that are read from the source.
            earlier: codes that are given already.
            more: messages that the source does not have as such.
        """
        earlier = earlier or cls()
        found = cls({}, dict(earlier.next))
        known = {_key(record): code for code, record in earlier.records.items()}
        new: list[Record] = []
        told: list[Record] = [
            (each.kind, each.exit_code, each.area, each.text)
            for each in templates
            if each.exit_code is not None
        ]
        first: dict[tuple[str, int, str], Record] = {}
        for record in sorted((*told, *more), key=lambda each: _place(each[2])):
            first.setdefault(_key(record), record)  # one code, whichever part says it
        for key, record in sorted(first.items()):
            if key in known:
                found.records[known[key]] = record
            else:
                new.append(record)
        gone = {code: each for code, each in earlier.records.items() if code not in found.records}
        for record, code in _reworded(new, gone).items():
            found.records[code] = record
            new.remove(record)
        for record in new:
            letter = LETTERS.get(record[2], _OTHER)
            number = found.next.get(letter, 1)
            found.next[letter] = number + 1
            found.records[f"AIT-{letter}{number:03}"] = record
        return found

    def name(self, template: ErrorTemplate) -> str:
        """The code of a message."""
        assert template.exit_code is not None, template.text
        record = template.kind, template.exit_code, template.area, template.text
        return self._names[_key(record)]

    @cached_property
    def _names(self) -> dict[tuple[str, int, str], str]:
        return {_key(record): code for code, record in self.records.items()}

    def text(self, meanings: Mapping[str, str]) -> str:
        """The file, one code in a line."""
        lines = [
            f"  {json.dumps(code)}: {json.dumps(record, ensure_ascii=False)}"
            for code, record in sorted(self.records.items())
        ]
        used = {record[0] for record in self.records.values()}
        said = {kind: text for kind, text in sorted(meanings.items()) if kind in used}
        return (
            '{"meanings": '
            + json.dumps(said, indent=1, ensure_ascii=False)
            + ',\n"next": '
            + json.dumps(dict(sorted(self.next.items())))
            + ',\n"codes": {\n'
            + ",\n".join(lines)
            + "\n}}\n"
        )


def _key(record: Record) -> tuple[str, int, str]:
    """What makes a message another one: its class, exit code and text, names of values aside."""
    return record[0], record[1], _PLACE.sub("{}", record[3])


def _place(area: str) -> int:
    """Of an area among all; the command line first."""
    return list(LETTERS).index(area) if area in LETTERS else len(LETTERS)


def _reworded(new: Sequence[Record], gone: Mapping[str, Record]) -> dict[Record, str]:
    """Messages that one of the same area that went is nearest to, with its code."""
    near: dict[str, list[tuple[float, str, Record]]] = defaultdict(list)
    for record in new:
        for code, other in gone.items():
            if other[2] == record[2]:
                alike = difflib.SequenceMatcher(None, record[3], other[3]).ratio()
                if alike >= _ALIKE:
                    near["all"].append((alike, code, record))
    found: dict[Record, str] = {}
    for _, code, record in sorted(near["all"], reverse=True):
        if record not in found and code not in found.values():
            found[record] = code
    return found
