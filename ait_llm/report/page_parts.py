"""What all HTML pages are made of: templates, the page's language, and a policy that lets only the
page's own style and script run.

Everything from a dump is data: it is escaped, or reaches the script as JSON and is shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

from ait_llm.language import current
from ait_llm.report.page_words import say
from ait_llm.report.wording import printable


def tag() -> str:
    """The language that is spoken now, as the ``lang`` of a page."""
    return {"zh": "zh-CN"}.get(current(), current())


def embedded(data: Any) -> str:  # one JSON value
    """JSON that can stand in a script element: no tag, no comment and no line end can form."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def policy(style: str, script: str) -> str:
    """A content security policy for one style and one script."""

    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode("utf-8")).digest()
        return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

    return (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def filled(template: str, values: dict[str, str]) -> str:
    """A template with each ``{{name}}`` replaced by its escaped value, once.

    ``{{=text}}`` is one of the page's own texts.
    """
    parts = template.split("{{")
    result = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        value = say(name[1:]) if name.startswith("=") else printable(values[name])
        result.append(html.escape(value) + rest)
    return "".join(result)


def resource(name: str) -> str:
    """A file of the pages, which has to be ASCII.

    Raises:
        ValueError: it is not.
    """
    text = (files("ait_llm.report") / "page" / name).read_text(encoding="utf-8")
    if not text.isascii():  # the policy's hash is of the bytes that the browser gets
        raise ValueError(f"{name} must be ASCII")
    return text
