"""Rows that a benchmark draws: one line for each on the terminal and in a file, then a table."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts")]

from page_parts import commit, replace_part  # noqa: E402


class Row(Protocol):
    """What was said of one draw; a frozen dataclass of tuples, texts and numbers."""

    @property
    def is_accused(self) -> bool:
        """A fault was told, and there is none."""
        ...

    def line(self) -> str:
        """For people."""
        ...


R = TypeVar("R", bound=Row)


def draw_rows(
    doc: str,
    kind: Callable[..., R],
    healthy: Callable[[], Iterable[R]],
    draw: Callable[[random.Random], R | None],
    publish: Callable[[Sequence[R]], None],
) -> int:
    """Draw what the command line asks for; 0 if no healthy pair is accused.

    Args:
        doc: of the program.
        kind: makes a row of its fields.
        healthy: the rows without a fault.
        draw: a row with one; None where what was drawn is no case, and another is drawn.
        publish: writes all rows into the pages.
    """
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=0, help="of pairs with a fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy", action="store_true", help="also each pair without a fault")
    parser.add_argument("--results", type=Path, help="a file that rows are added to")
    parser.add_argument("--write", action="store_true", help="write its part of the page")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    rows: list[R] = []
    first: Iterable[R] = healthy() if given.healthy else ()
    for row in itertools.chain(first, _drawn(given.seed, given.draws, draw)):
        rows.append(row)
        print(row.line(), flush=True)
        if given.results is not None:
            fields: Any = row
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(fields)) + "\n")
    if given.write:
        publish(rows if given.results is None else _read(given.results, kind))
    return int(any(row.is_accused for row in rows))


def write_table(name: str, what: str, program: str, text: str) -> None:
    """Write a table into the page of a command, in both languages.

    Args:
        name: of the page.
        what: of the part, in its marks.
        program: of this folder, that writes it.
        text: the table.
    """
    begin = f"<!-- {what}: written by scripts/bench/{program} -->"
    pages = [ROOT / "docs" / f"{name}{ending}" for ending in (".md", ".zh.md")]
    replace_part(pages, begin, f"<!-- end of {what} -->", f"Until {commit()}. {text}")


def _drawn(seed: int, draws: int, draw: Callable[[random.Random], R | None]) -> Iterator[R]:
    for number in range(draws):
        rng = random.Random(f"{seed}/{number}")
        while (row := draw(rng)) is None:
            pass
        yield row


def _read(path: Path, kind: Callable[..., R]) -> list[R]:
    return [kind(**_tuples(json.loads(line))) for line in path.read_text("utf-8").splitlines()]


def _tuples(value: Any) -> Any:
    """Lists of JSON as the tuples that they were; the members of an object stay one."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return value
