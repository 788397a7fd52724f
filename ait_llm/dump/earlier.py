"""What lies in an output already before a capture begins."""

from __future__ import annotations

import json
from pathlib import Path


def earlier_runs(dump_dir: Path) -> str | None:
    """That earlier captures lie in the folder, in a sentence; None if there are none."""
    times = []
    for path in (dump_dir / "ledger").glob("*.jsonl"):
        try:
            with path.open("rb") as file:
                header = json.loads(file.readline(1 << 20))
            times.append(str(header.get("time", "")))
        except (OSError, ValueError, AttributeError):
            times.append("")  # still somebody's
    if not times:
        return None
    count = f"{len(times)} process" if len(times) == 1 else f"{len(times)} processes"
    newest = f", the last of {max(times)}" if max(times) else ""
    return (
        f"{dump_dir} holds the capture of {count} already{newest}; compare takes the newest run, "
        "and an -o of its own keeps both"
    )
