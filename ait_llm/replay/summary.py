"""The summary of a replay."""

from __future__ import annotations

import shlex

from ait_llm.replay.outcome import Outcome
from ait_llm.report.summary import Finding, Summary
from ait_llm.report.wording import counted


def replay_summary(outcome: Outcome, code: int) -> Summary:
    """What a replay says to a build.

    Args:
        outcome: what came of it.
        code: what the command ends with.
    """
    words = ["ait", "llm", "compare", "-gp", str(outcome.output), "-mp", str(outcome.source)]
    missing = [
        f"{name}, which {reader} reads, was not captured"
        for name, reader in outcome.missing.items()
    ]
    return Summary(
        "replay",
        "PASS" if code == 0 else "INCOMPLETE",
        code,
        f"{outcome.computed:,} of {counted(outcome.operators, 'operator')} of {outcome.source} "
        f"computed with golden ones, {outcome.mode}",
        {
            "computed": outcome.computed,
            "not computed": len(outcome.skipped),
            "started from dumped values": len(outcome.started),
        },
        "operators",
        tuple(
            Finding(
                "not-computed",
                "warning",
                each.op,
                f"{each.reason}; "
                + ("dumped outputs used" if each.taken else "no outputs to go on with"),
                f"step {each.step}",
            )
            for each in outcome.skipped
        ),
        (*missing, *outcome.problems),
        (str(outcome.output),),
        shlex.join(words) if outcome.computed else "",
    )
