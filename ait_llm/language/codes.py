"""Codes of errors, such as ``AIT-F012``: which one a message has, and what stands behind it.

``error_codes.json`` beside this module is written by ``scripts/error_catalogue.py`` from the
messages in the source. A code stays that of its message when the wording changes a little, and is
never given to another one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ait_llm.errors import UnknownNameError
from ait_llm.language.catalogue import Catalogue

FILE = Path(__file__).with_name("error_codes.json")
_PREFIX = "AIT-"
# Between what happened and what to do about it, in a message.
_BREAKS = (". ", "; ")


@dataclass(frozen=True, slots=True)
class Explained:
    """What is known of an error.

    Attributes:
        code: such as ``AIT-F012``.
        kind: name of its class; ``click.`` in front where it is one of the command line's library.
        exit_code: what a command that stops because of it ends with.
        area: the part of the program.
        message: with placeholders in braces.
        meaning: of the class.
    """

    code: str
    kind: str
    exit_code: int
    area: str
    message: str
    meaning: str

    @property
    def cause(self) -> str:
        """What happened: the message without what to do."""
        return self._parts[0]

    @property
    def cure(self) -> str:
        """What the message says to do; empty where it leaves that to its class."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        for each in _BREAKS:
            cause, found, cure = self.message.rpartition(each)
            if found:
                return _plain(cause), _plain(cure)
        return _plain(self.message), ""


def _plain(text: str) -> str:
    """With braces as a message has them."""
    return text.replace("{{", "{").replace("}}", "}")


def explained(code: str) -> Explained:
    """What stands behind a code, in any case and with or without ``AIT-``.

    Raises:
        UnknownNameError: there is no such code.
    """
    known = _codes()
    name = code.strip().upper().removeprefix(_PREFIX)
    name = f"{_PREFIX}{name[:1]}{name[1:]:>03}"
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]}?" if near else "codes are written like AIT-F012"
    raise UnknownNameError(f"there is no error {code!r}; {hint}")


def code_of(kinds: Iterable[str], message: str) -> str | None:
    """The code of a message.

    Args:
        kinds: names of the error's class and of those above it, its own first.
        message: as it is told, in English.
    """
    tables = _messages()
    for kind in kinds:
        table = tables.get(kind)
        found = None if table is None else table.meaning_of(message)
        if found is not None:
            return found
    return None


@cache
def _codes() -> Mapping[str, Explained]:
    content = json.loads(FILE.read_text("utf-8"))
    meanings = content["meanings"]
    return {
        code: Explained(code, kind, exit_code, area, message, meanings.get(kind, ""))
        for code, (kind, exit_code, area, message) in content["codes"].items()
    }


@cache
def _messages() -> Mapping[str, Catalogue]:
    """Codes by message, of each class."""
    found: dict[str, dict[str, str]] = {}
    for code, each in _codes().items():
        found.setdefault(each.kind, {})[each.message] = code
    return {kind: Catalogue(messages) for kind, messages in found.items()}
