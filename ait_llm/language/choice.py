"""Which language messages are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ait_llm.errors import UsageError

LANGUAGES = ("en", "zh")
VARIABLE = "AIT_LANG"
# In the order in which the C library looks at them.
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")

_CURRENT: ContextVar[str] = ContextVar("ait_llm_language", default="en")


def chosen(option: str | None, environment: Mapping[str, str]) -> str:
    """The language of a command.

    Args:
        option: value of ``--lang``, which counts most.
        environment: then ``AIT_LANG``, then the locale: the first of ``LC_ALL``, ``LC_MESSAGES``
            and ``LANG`` that is set. A locale of another language means English.

    Raises:
        UsageError: ``--lang`` or ``AIT_LANG`` names no language that messages are in.
    """
    for name, value in (("--lang", option), (VARIABLE, environment.get(VARIABLE))):
        if value:
            if value not in LANGUAGES:
                known = " or ".join(LANGUAGES)
                raise UsageError(f"{name} {value!r} is no language of the messages; give {known}")
            return value
    locale = next((environment[name] for name in _LOCALE if environment.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def current() -> str:
    """The language that messages are shown in now."""
    return _CURRENT.get()


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Show messages in a language, within the block and what it calls."""
    token = _CURRENT.set(language)
    try:
        yield
    finally:
        _CURRENT.reset(token)
