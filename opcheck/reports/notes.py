"""What a reader of an opcheck result should know beside its verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.rerun import NO_RERUN, NoBackend
from ait_llm.report.wording import counted

LISTED = 10  # of each kind
ON_HOSTATB = (
    "the dump is of hostatb, whose kernels are the golden operators: what passes shows that "
    "capture and check fit together, not that a kernel is right"
)
_NO_OTHER = (
    "there is no NPU here; --rerun-with MODULE:FUNCTION runs operators with another implementation"
)


def notes(report: OpcheckReport) -> Iterator[str]:
    """One sentence each."""
    if report.on_hostatb:
        yield ON_HOSTATB
    if report.rerun == NoBackend.name:
        yield f"{NO_RERUN}: {_NO_OTHER}"
    noted = Counter(i.note for i in report.items if i.note and i.verdict is Verdict.PASS)
    for note, count in noted.most_common(LISTED):
        yield f"{counted(count, 'output')} passed: {note}"
    for reason, count in sorted(report.unchecked.items()):
        yield f"nothing to check in {counted(count, 'operator')}: such operators {reason}"
