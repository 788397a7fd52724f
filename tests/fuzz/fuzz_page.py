"""The table of what fuzzing with coverage has read, in docs/robustness.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from engine import Target, replay
from exploring import CPU_SECONDS, RSS_MIB, Explored

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / "scripts")]

from page_parts import commit, replace_part  # noqa: E402

PAGES = [_ROOT / "docs" / f"robustness{end}" for end in (".md", ".zh.md")]
RECORD = Path(__file__).with_name("explored.json")
BEGIN, END = "<!-- fuzzing: written by scripts/fuzz --write -->", "<!-- end of fuzzing -->"


def read_record() -> dict[str, Explored]:
    """What all runs that were written down have read, by reader."""
    if not RECORD.exists():
        return {}
    values = json.loads(RECORD.read_text("utf-8"))
    return {name: Explored.of({"target": name, **each}) for name, each in values.items()}


def added(record: dict[str, Explored], found: Sequence[Explored]) -> dict[str, Explored]:
    """The record with further runs; those of a seed that it has already are left out."""
    for each in found:
        known = record.get(each.target)
        if known is None:
            record[each.target] = each
        elif not set(each.seeds) & set(known.seeds):
            known.add(each)
    return record


def write_record(record: dict[str, Explored]) -> None:
    """Write the record, a line for each reader; of findings the file and its kind, no traceback."""
    lines = []
    for name, each in sorted(record.items()):
        values = {key: value for key, value in asdict(each).items() if key != "target"}
        for finding in values["findings"]:
            finding["text"] = ""  # has paths of the machine, and is told again by the file
        lines.append(f" {json.dumps(name)}: {json.dumps(values)}")
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def read_results(path: Path) -> list[Explored]:
    """All runs in a file of ``--results``, those of one reader added up."""
    found: dict[str, Explored] = {}
    for line in path.read_text("utf-8").splitlines():
        run = Explored.of(json.loads(line))
        if (known := found.setdefault(run.target, run)) is not run:
            known.add(run)
    return list(found.values())


def table(commit: str, found: Sequence[Explored], still: Iterable[str]) -> str:
    """What each reader read, and what was found."""
    runs, seconds = sum(each.runs for each in found), sum(each.seconds for each in found)
    broken = sum(len(each.findings) for each in found)
    still = list(still)
    slowest, most = max(each.slowest for each in found), max(each.rss_mib for each in found)
    lines = [
        f"{runs:,} files for {len(found)} readers in {seconds / 60:.0f} minutes, until {commit}.",
        f"{broken} findings, of which {len(still)} are open." if broken else "No finding.",
        f"Slowest file: {slowest:.2f} s of at most {CPU_SECONDS:g} s.",
        f"Largest process, torch and the fuzzer included: {most} MiB of at most {RSS_MIB} MiB.",
        "",
        "| reader | files | accepted | slowest | findings |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{each.target}` | {each.runs:,} | {each.accepted:,} | {each.slowest:.2f} s | "
        f"{len(each.findings)} |"
        for each in sorted(found, key=lambda explored: -explored.runs)
    ]
    return "\n".join(lines + [f"\n- **open**: {each}" for each in still])


def publish(found: Sequence[Explored], targets: dict[str, Target]) -> None:
    """Add runs to the record and write its table in the pages; findings are looked at again."""
    record = added(read_record(), found)
    write_record(record)
    found = list(record.values())
    still = [
        f"{each.target}: {again.kind}"
        for each in found
        if each.findings
        for again in replay(
            targets[each.target], [bytes.fromhex(finding.data) for finding in each.findings]
        ).findings
    ]
    replace_part(PAGES, BEGIN, END, table(commit(), found, still))
