"""The tokens that a golden run chose, for another run to follow.

The program that follows imports this, so it needs nothing that reads dumps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ait_llm.errors import UsageError


@dataclass(frozen=True, slots=True)
class GoldenRequest:
    """One request of a golden generation.

    Attributes:
        generation: its number in its process, from 0.
        prompt: the token ids that it began with, without padding.
        chosen: those that followed, as far as the dump has them.
    """

    generation: int
    prompt: tuple[int, ...]
    chosen: tuple[int, ...]

    def place_of(self, ids: Sequence[int]) -> int | None:
        """How many chosen tokens a run has behind the prompt, which may be padded on the left.

        None if it has another prompt, or chose otherwise.
        """
        whole = (*self.prompt, *self.chosen)
        for length in range(min(len(ids), len(whole)), len(self.prompt) - 1, -1):
            padding = ids[: len(ids) - length]
            if tuple(ids[len(padding) :]) == whole[:length] and len(set(padding)) < 2:
                return length - len(self.prompt)
        return None


@dataclass(frozen=True, slots=True)
class GoldenTokens:
    """What all processes of a golden run chose.

    Attributes:
        path: the dump, as it was given.
        requests: in the order of the run, by rank; rank -1 where there is none.
    """

    path: str
    requests: Mapping[int, tuple[GoldenRequest, ...]]

    @property
    def steps(self) -> int:
        """Tokens of the longest request."""
        return max(len(each.chosen) for side in self.requests.values() for each in side)

    @property
    def generations(self) -> int:
        """Generations of the process that has most."""
        return max(len({each.generation for each in side}) for side in self.requests.values())

    def of_rank(self, rank: int) -> tuple[GoldenRequest, ...]:
        """The requests of a rank; those of the first one where golden has no such rank."""
        return self.requests.get(rank) or next(iter(self.requests.values()))

    def to_json(self) -> str:
        """What :meth:`from_json` reads."""
        requests = {rank: [asdict(each) for each in side] for rank, side in self.requests.items()}
        return json.dumps({"path": self.path, "requests": requests})

    @classmethod
    def from_json(cls, text: str) -> GoldenTokens:
        """Read what :meth:`to_json` wrote.

        Raises:
            UsageError: it is damaged.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            requests = {
                int(rank): tuple(
                    GoldenRequest(
                        int(each["generation"]), tuple(each["prompt"]), tuple(each["chosen"])
                    )
                    for each in side
                )
                for rank, side in values["requests"].items()
            }
            return cls(str(values["path"]), requests)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"the tokens to follow are not readable ({error}); start through ait llm dump"
            ) from error
