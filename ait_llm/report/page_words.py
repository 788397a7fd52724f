"""The HTML page's own words, in the language that is spoken now.

English texts are the keys, with ``{0}``, ``{1}`` for what is filled in; ``say`` of the page's
script looks them up in the same table. What comes from the comparison is a message as on the
terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from ait_llm.language import current

_PLACE = re.compile(r"\{(\d)\}")


def page_words() -> Mapping[str, str]:
    """The translations of the page's own texts; empty in English."""
    return {} if current() == "en" else _table(current())


@cache
def _table(language: str) -> Mapping[str, str]:
    text = (files("ait_llm.report") / "page" / f"{language}.json").read_text(encoding="utf-8")
    table: dict[str, str] = json.loads(text)
    return table


def say(text: str, *values: object) -> str:
    """One of the page's own texts with its values."""
    return _PLACE.sub(lambda found: str(values[int(found[1])]), page_words().get(text, text))
