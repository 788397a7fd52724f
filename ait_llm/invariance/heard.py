"""What changed calls tell, from this process or from those of a program."""

from __future__ import annotations

from typing import Any

from ait_llm.invariance.result import Answer

_NOBODY = (
    "the program calls no model of transformers and no LLM of vLLM, and does not make it itself"
)


class Heard:
    """Listens to events of :class:`ait_llm.dump.changes.calls.ChangedCalls`.

    Attributes:
        answers: by the number of the call.
        made: the change was made in a call.
        has_engine: the program made an engine, which starts its ranks itself.
    """

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.made = self.has_engine = False
        self._reasons: list[str] = []

    def hear(self, event: str, **facts: Any) -> None:
        """Take an event; those of other captures are nothing to it."""
        if event == "changed":
            self.made = True
        elif event == "engine":
            self.has_engine = True
        elif event == "unchanged":
            self._reasons.append(str(facts["reason"]))
        elif event == "answer":
            answer = Answer(facts["tokens"], facts["generated"], facts["prompt"])
            self.answers[facts["number"]] = answer

    def why_not(self) -> str:
        """Why the change was not made."""
        return "; ".join(dict.fromkeys(self._reasons)) or _NOBODY
