"""The summary of two runs' tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ait_llm.decisions.result import Decision, TokensResult
from ait_llm.report.summary import Curve, Finding, Summary, Table, finding_order
from ait_llm.report.wording import counted

_SHOWN = 10  # contributions of one choice


def tokens_summary(result: TokensResult, files: Sequence[Path]) -> Summary:
    """What the runs say to a build.

    Args:
        result: of the runs.
        files: that were written.
    """
    verdict = {0: "PASS", 1: "FAIL"}.get(result.code, "INCOMPLETE")
    flips = result.flips
    counts = {
        "the same token": len(result.decisions) - len(flips),
        "another one by rounding": sum(each.cause == "rounding" for each in flips),
        "another one by a difference": sum(each.cause == "difference" for each in flips),
        "another one, cause unknown": sum(each.cause == "undecided" for each in flips),
    }
    lacking = list(result.notes)
    if result.status != "compared":
        lacking.insert(0, result.reason)
    return Summary(
        "tokens",
        verdict,
        result.code,
        f"{counted(len(result.decisions), 'choice')} of a token",
        counts,
        "choices",
        finding_order(_findings(result)),
        tuple(lacking),
        tuple(map(str, files)),
        "",
    )


def tokens_tables(result: TokensResult) -> list[Table]:
    """Each choice, what changed those that were looked at, and settings, for the page."""
    head = ("step", "place", "golden", "mine", "margin golden", "margin mine", "drift", "cause")
    rows = [
        (
            str(each.step),
            ", ".join(map(str, each.place)),
            str(each.golden),
            str(each.mine),
            f"{each.golden_margin:.3g}",
            f"{each.mine_margin:.3g}",
            f"{each.drift:.2e}",
            each.cause,
        )
        for each in result.decisions
    ]
    some = result.decisions
    curves = (
        Curve(
            "margin of golden's token, token by token",
            [
                ("golden", [each.golden_margin for each in some]),
                ("mine", [each.mine_margin for each in some]),
            ],
        ),
        Curve(
            "drift of its log-probability, token by token",
            [("mine less golden", [each.drift for each in some])],
        ),
    )
    tables = [Table("Tokens", head, rows, curves)]
    for each in result.decisions:
        if each.contributions:
            tables.append(_contributions(each))
    if result.settings:
        settings = [(each.name, each.golden, each.mine) for each in result.settings]
        tables.append(Table("Settings", ("setting", "golden", "mine"), settings))
    return tables


def _contributions(decision: Decision) -> Table:
    head = ("operator", "value", "change of the margin", "own error", "known by")
    rows = [
        (
            each.op,
            f"to {each.through}" if each.through else each.name,
            f"{each.change:+.3g}",
            "rounding" if each.within_rounding else "more than rounding",
            "runs" if each.measured else "gradients",
        )
        for each in decision.contributions[:_SHOWN]
    ]
    rows.append(("", "all together", f"{decision.explained or 0.0:+.3g}", "", ""))
    rows.append(("", "measured", f"{decision.change:+.3g}", "", ""))
    return Table(f"Step {decision.step}: what changed the margin", head, rows)


def _findings(result: TokensResult) -> Iterator[Finding]:
    levels = {"difference": ("origin", "error"), "undecided": ("not-checked", "warning")}
    for each in result.flips:
        rule, level = levels.get(each.cause, ("doubtful", "notice"))
        text = f"token {each.mine} instead of {each.golden}: {each.reason}"
        where = f"step {each.step}"
        if each.cause == "difference" and each.contributions:
            where = each.contributions[0].op
        yield Finding(rule, level, where, text, f"step {each.step} {list(each.place)}")  # type: ignore[arg-type]  # the levels above
    for setting in result.settings:
        values = [value or "not set" for value in (setting.mine, setting.golden)]
        text = f"{setting.name} is {values[0]} instead of {values[1]}"
        yield Finding("origin", "error", "settings", text, setting.name)
    if result.status in ("undecided", "failed"):
        yield Finding("not-checked", "warning", "the tokens", result.reason)
