"""The report as a Parquet table, with the columns of ``Report.to_pandas``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ait_llm.core.comparison import Report
from ait_llm.core.optional import import_optional
from ait_llm.report.files import replacing
from ait_llm.report.writing import writers


@writers.register("parquet")
def write_parquet(report: Report, path: Path) -> Sequence[Path]:
    """Write every comparison as a row; verdict, sides and origins are in the table's metadata.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    library: Any = import_optional("pyarrow.parquet", "writing parquet reports", "arrow")
    facts = {
        "ait_llm.verdict": report.verdict.value,
        "ait_llm.golden": report.golden.path,
        "ait_llm.mine": report.mine.path,
        "ait_llm.origins": "\n".join(origin.op for origin in report.origins),
    }
    table = report.to_arrow().replace_schema_metadata(
        {name: text.encode("utf-8", "backslashreplace") for name, text in facts.items()}
    )
    with replacing(path, binary=True) as file:
        library.write_table(table, file)
    return (path,)
