"""Why a recorded call of a function is not run again."""

from __future__ import annotations

LEFT_OUT = "left out:"


class UncheckableError(Exception):
    """A call that is not checked.

    Args:
        reason: a clause for the table.
        by_rule: the check leaves such calls out by definition; it is not something that the user
            asked for and did not get.
    """

    def __init__(self, reason: str, *, by_rule: bool = False) -> None:
        self.reason = f"{LEFT_OUT} {reason}" if by_rule else reason
        super().__init__(self.reason)
