"""Text in XML."""

from __future__ import annotations

import re

# What XML 1.0 has no way to write, not even as a reference.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def legal_xml(text: str) -> str:
    """The text with escapes for what XML cannot hold."""
    return _ILLEGAL.sub(lambda found: ascii(found[0])[1:-1], text)


def quoted_xml(text: str) -> str:
    """The text as the value of an attribute, with its quotes."""
    from xml.sax.saxutils import quoteattr  # loads urllib, http and ssl, which nothing else needs

    return quoteattr(legal_xml(text))
