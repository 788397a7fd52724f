"""Write ``ait_llm/hostatb/acceptance/operator_table.json`` from a checkout of the public sources.

Usage: python scripts/vendor/operator_table.py CHECKOUT
"""

from __future__ import annotations

import configparser
import json
import sys
from pathlib import Path

TABLE = Path("ops_configs/atb_ops_info.ini")
TARGET = Path(__file__).resolve().parents[2] / "ait_llm/hostatb/acceptance/operator_table.json"


def main() -> None:
    """Read the table of the checkout and write ours: one line for each section."""
    parser = configparser.ConfigParser(strict=False)
    parser.read(Path(sys.argv[1]) / TABLE, encoding="utf-8")
    sections = {name: _section(dict(parser[name])) for name in sorted(parser.sections())}
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in sections.items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{TARGET}: {len(sections)} sections")


def _section(fields: dict[str, str]) -> dict[str, list[str] | list[int]]:
    found: dict[str, list[str] | list[int]] = {}
    widest = max((len(_words(text)) for key, text in fields.items() if "." in key), default=0)
    for kind, short in (("input", "in"), ("output", "out")):
        numbers = sorted(
            int(key.removeprefix(kind).partition(".")[0])
            for key in fields
            if key.startswith(kind) and key.endswith(".dtype")
        )
        columns = [
            [
                dtype if layout == "nd" else f"{dtype}/{layout}"
                for dtype, layout in zip(
                    _words(fields[f"{kind}{number}.dtype"]),
                    _words(fields[f"{kind}{number}.format"]),
                    strict=True,
                )
            ]
            for number in numbers
        ]
        rows = len(columns[0]) if columns else widest
        found[short] = [" ".join(column[row] for column in columns) for row in range(rows)]
        optional = [n for n in numbers if fields.get(f"{kind}{n}.optional") == "true"]
        if optional:
            found[f"optional_{short}"] = optional
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


if __name__ == "__main__":
    main()
