"""What was said of healthy programs and of planted faults under changes, as a page of Markdown."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts")]

from page_parts import commit  # noqa: E402

PAGE = ROOT / "docs" / "invariant-results.md"
_SIGNS = {"held": "held", "not made": "n/a", "broken": "**broken**", "failed": "failed"}
_HEAD = """# Results of `ait llm invariant`

Written by `scripts/bench/invariances.py --write`; do not edit it. Healthy programs are small models
of families of `transformers` with drawn weights, in float32 and bfloat16, by `generate` and as a
call of two rows. None may be accused. *undecided* is what could not be compared; *n/a* is a change
that does not apply. Faults (`tests/support/invariance_faults.py`) break one invariance each;
*named* is that the first operator told lies in the module whose code is wrong.
"""


@dataclass(frozen=True)
class Row:
    """What was said under one change.

    Attributes:
        program: ``family/dtype/way``, or the name of a fault.
        change: its name.
        state: what became of it.
        origin: the operation that was named.
        reason: what was said.
        wanted: of a fault, the module that is wrong; empty for a healthy program.
        equal: every number was equal.
        seconds: that both calls and the comparison took, of a fault.
    """

    program: str
    change: str
    state: str
    origin: str = ""
    reason: str = ""
    wanted: str = ""
    equal: bool = False
    seconds: float = 0.0

    @property
    def is_accused(self) -> bool:
        """True for a healthy program that is told to break an invariance."""
        return not self.wanted and self.state == "broken"

    @property
    def is_found(self) -> bool:
        """True for a fault that is told."""
        return bool(self.wanted) and self.state == "broken"

    @property
    def is_named(self) -> bool:
        """True for a fault whose module is named."""
        return self.is_found and self.origin.startswith(self.wanted)

    def record(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"

    def line(self) -> str:
        """For people."""
        what = f"{self.program} {self.change}: {self.state}"
        if self.wanted:
            return f"{what}, {'named' if self.is_named else f'not named: {self.origin}'}"
        return what if self.state in ("held", "not made") else f"{what}: {self.reason[:200]}"


def read(path: Path) -> list[Row]:
    """Rows of a file; of one program and change the last."""
    rows = [Row(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return list({(row.program, row.change): row for row in rows}.values())


def publish(rows: Sequence[Row]) -> None:
    """Write the page."""
    PAGE.write_text(page(rows, commit()), "utf-8")


def page(rows: Sequence[Row], until: str) -> str:
    """The page."""
    healthy = [row for row in rows if not row.wanted]
    faults = [row for row in rows if row.wanted]
    states = Counter(row.state for row in healthy)
    changes = list(dict.fromkeys(row.change for row in healthy))
    programs = list(dict.fromkeys(row.program for row in healthy))
    families = len({program.partition("/")[0] for program in programs})
    known = {(row.program, row.change): row for row in healthy}
    found, named = sum(row.is_found for row in faults), sum(row.is_named for row in faults)
    lines = [
        _HEAD,
        f"Rows made until {until}: {len(programs)} programs of {families} families, "
        f"{len(changes)} changes, {states['broken']} accused; {states['held']} held, "
        f"{states['undecided']} undecided, {states['not made']} do not apply, "
        f"{states['failed']} failed. "
        f"{found} of {len(faults)} faults found, {named} named.",
        "",
        f"| program | {' | '.join(changes)} |",
        f"| --- |{' --- |' * len(changes)}",
    ]
    for program in programs:
        cells = [_cell(known.get((program, change))) for change in changes]
        lines.append(f"| {program} | {' | '.join(cells)} |")
    lines += ["", "| fault | change | said | named |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {row.program} | {row.change} | {row.state} | {'yes' if row.is_named else 'no'} |"
        for row in faults
    ]
    return "\n".join(lines) + "\n"


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return "equal" if row.equal else _SIGNS.get(row.state, row.state)
