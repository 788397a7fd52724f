"""The mapping that a user gives: read from any of its forms, checked, and carried out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.formats.opening import read_small
from ait_llm.match.mapping.given import check_names, pairs_of
from ait_llm.match.mapping.json_file import is_saved_json, read_saved_json
from ait_llm.match.mapping.names import Names
from ait_llm.match.mapping.text import UserMapping, read_text
from ait_llm.match.mapping.write import write_mapping
from ait_llm.match.model import Match, MatchOptions, Unmatched, matchers
from ait_llm.match.op_mapping import MAX_BYTES, find_mapping_file, read_json, read_op_mapping
from ait_llm.program.one_pass import Pass

__all__ = [
    "check_mapping",
    "read_either",
    "read_mapping",
    "saved_mapping",
    "write_mapping",
]


def read_either(path: Path) -> tuple[dict[str, tuple[str, ...]] | None, UserMapping | None]:
    """Read the file of ``--op-mapping-file``: a table of types, or a mapping of tensors.

    Returns:
        One of the two.

    Raises:
        FormatError: it is neither.
    """
    file = find_mapping_file(path)
    if _is_json(file) and not is_saved_json(read_json(file)):
        return read_op_mapping(file), None
    return None, read_mapping(file)


def read_mapping(path: Path) -> UserMapping:
    """Read lines of patterns, or a mapping that an earlier version saved as JSON.

    Raises:
        FormatError: it is neither; the reason names the line or the pair.
    """
    if _is_json(path):
        return read_saved_json(path, read_json(path))
    try:
        return read_text(path, read_small(path, MAX_BYTES).decode())
    except UnicodeDecodeError:
        raise FormatError(path, "is neither JSON nor text in UTF-8") from None


def _is_json(path: Path) -> bool:
    """Only a line of patterns has an arrow, and it may begin with a brace as JSON does."""
    content = read_small(path, MAX_BYTES).lstrip()
    return content[:1] in (b"{", b"[") and b" -> " not in content.partition(b"\n")[0]


def check_mapping(mapping: UserMapping, passes: Iterable[tuple[Pass, Pass]]) -> None:
    """Refuse a mapping with a line that names nothing on one side of the passes it speaks of.

    Raises:
        FormatError: there is one; the reason says which names come nearest.
    """
    if not mapping.allow_missing:
        check_names(mapping, ((Names(golden), Names(mine)) for golden, mine in passes))


@matchers.register("saved_mapping")
def saved_mapping(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """The pairs that the user's mapping names in these two runs."""
    if options.mapping is not None:
        yield from pairs_of(options.mapping, Names(golden), Names(mine))
