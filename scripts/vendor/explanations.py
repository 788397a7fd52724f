"""What has been shown about disagreements: whose fault they are, and why."""

from __future__ import annotations

from vendor.cases import Case
from vendor.outcome import Side


def explain(case: Case, said: str) -> tuple[Side, str]:
    """Who is to blame for the difference of a case, and what shows it."""
    return Side.OURS, ""
