"""What places are called in messages and reports: a copy goes by the address that it came from.

Files from elsewhere are copied into a folder of this process, and results are written to one before
they are sent away. Nobody knows these folders, so whatever is told of a file passes through here.
"""

from __future__ import annotations

_addresses: dict[str, str] = {}  # text of a local folder, to what users call it


def name_place(folder: str, address: str) -> None:
    """Let messages say ``address`` where they would say ``folder``."""
    _addresses[folder] = address


def forget_place(folder: str) -> None:
    """Call a folder by its own name again."""
    _addresses.pop(folder, None)


def escaped(text: str, kept: str = "") -> str:
    """Text in which nothing steers what shows it.

    Controls, characters that reverse a line, half characters of file names and whatever else cannot
    be printed are written as escapes.

    Args:
        text: with names that come from elsewhere.
        kept: such characters that stay, like the line ends of a message.

    Example:
        >>> from ait_llm.naming import escaped
        >>> escaped("a\\x1b[2Jb")
        'a\\\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in kept
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def told(text: str) -> str:
    """A message of one or more lines for a terminal: :func:`shown`, and :func:`escaped`."""
    return escaped(shown(text), "\n\t")


def shown(text: str) -> str:
    """The text with local folders called what users call them.

    Example:
        >>> from ait_llm.naming import shown
        >>> shown("out/ait_dump: not a dump")
        'out/ait_dump: not a dump'
    """
    if _addresses:
        for folder, address in list(_addresses.items()):
            if folder in text:
                text = text.replace(folder, address)
    return text
