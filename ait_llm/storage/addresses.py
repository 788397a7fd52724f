"""URLs as text: which words are some, and how to print them without their secrets."""

from __future__ import annotations

import re

from ait_llm.errors import UsageError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::[A-Za-z][A-Za-z0-9+.-]*)*://")
_USER = re.compile(r"(://[^/@:]*):[^/@]*@")
# values of a query that let others in: presigned URLs, shared access signatures, tokens
_SECRET = re.compile(
    r"([?&;][^=&;]*(?:secret|token|password|passwd|signature|credential|key|sig|auth)[^=&;]*=)"
    r"[^&;:]*",
    re.IGNORECASE,
)
_LOCAL = ("file", "local")


def is_url(text: object) -> bool:
    """True for text such as ``s3://bucket/out`` or ``zip::s3://bucket/out.zip``.

    Example:
        >>> from ait_llm.storage import is_url
        >>> is_url("s3://bucket/out"), is_url("out/ait_dump")
        (True, False)
    """
    return isinstance(text, str) and _URL.match(text) is not None


def check_characters(url: str) -> None:
    """Refuse what would end a text of JSON or a line of a terminal in which the URL is named.

    Raises:
        UsageError: there is such a character.
    """
    if any(char in '"\\' or not char.isprintable() for char in url):
        raise UsageError(
            f"{redacted(url)!r}: URLs with quotes, backslashes or control characters are not read"
        )


def redacted(url: str) -> str:
    """The URL with passwords and signatures replaced by ``***``.

    Example:
        >>> from ait_llm.storage import redacted
        >>> redacted("ftp://me:secret@host/out")
        'ftp://me:***@host/out'
    """
    return _SECRET.sub(r"\1***", _USER.sub(r"\1:***@", url))


def without_secrets(text: str, url: str) -> str:
    """A message of a library, which may repeat a URL or its password, without what is secret."""
    text = text.replace(url, redacted(url))
    for found in re.finditer(r"://[^/@:]*:([^/@]*)@", url):
        if found[1]:
            text = text.replace(found[1], "***")
    return redacted(text)


def local_part(url: str) -> str | None:
    """The path of a ``file://`` URL as fsspec reads it, None for other URLs."""
    protocol, separator, rest = url.partition("://")
    if not separator or protocol.lower() not in _LOCAL or "::" in url:
        return None
    return rest.removeprefix("localhost") if rest.startswith("localhost/") else rest
