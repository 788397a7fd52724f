"""What is said of a run that followed golden's tokens."""

from __future__ import annotations

from ait_llm.dumps.following import followed


def test_a_choice_before_the_first_step_has_no_number() -> None:
    differs = {"own": 50, "taken": 79, "margin": 0.5, "step": -1, "request": 0}
    lines = [
        {"golden": "g", "state": "begun"},
        {"golden": "g", "state": "differs", **differs},
        {"golden": "g", "state": "ended", "step": 3},
    ]
    found = followed(lines)
    assert found is not None
    assert found.done == (
        "followed the tokens of g; its own choice would have been 50 instead of 79 before step 0 "
        "(margin 0.5); golden has none for the choice at step 3, which was its own"
    )
