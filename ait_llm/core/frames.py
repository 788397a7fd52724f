"""Tables for data frame libraries: rows with typed columns, which some value may lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ait_llm.core.optional import import_optional

if TYPE_CHECKING:
    import pandas
    import pyarrow

# Of a column: its type in pandas, and in Arrow.
TEXT, FLAG, SIZES = ("object", "string"), ("bool", "bool"), ("object", "sizes")
WHOLE, MAYBE_WHOLE, REAL = ("int64", "int64"), ("Int64", "int64"), ("float64", "float64")
Columns = Mapping[str, tuple[str, str]]


def to_pandas(rows: Iterable[Mapping[str, Any]], columns: Columns, what: str) -> pandas.DataFrame:
    """Rows as a data frame.

    Args:
        rows: what they hold by column; None where there is nothing.
        columns: all of them, in order.
        what: what it is a table of, for people.

    Raises:
        MissingDependencyError: pandas is not installed.
    """
    library: Any = import_optional("pandas", f"a data frame of {what}")
    kinds = {name: kind for name, (kind, _) in columns.items()}
    found: pandas.DataFrame = library.DataFrame(list(rows), columns=list(kinds)).astype(kinds)
    return found


def to_arrow(rows: Iterable[Mapping[str, Any]], columns: Columns, what: str) -> pyarrow.Table:
    """Rows as a table of Arrow; arguments as of :func:`to_pandas`.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    library: Any = import_optional("pyarrow", f"an Arrow table of {what}", "arrow")
    special = {"sizes": library.list_(library.int64())}
    schema = library.schema(
        [
            (name, special.get(kind) or library.type_for_alias(kind))
            for name, (_, kind) in columns.items()
        ]
    )
    found: pyarrow.Table = library.Table.from_pylist([dict(row) for row in rows], schema=schema)
    return found


def html_table(cells: Mapping[str, str]) -> str:
    """Names and texts as a small table for notebooks."""
    from html import escape  # what prints no table does not need it

    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in cells.items()
    )
    return f"<table>{rows}</table>"
