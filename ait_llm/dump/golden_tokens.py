"""The tokens that a golden run chose, for another run to follow.

The program that follows imports this, so it needs nothing that reads dumps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
class GoldenBeams:
    """One beam search of a golden run.

    Attributes:
        width: beams of each prompt.
        prompts: the token ids that each one began with, as the search was given them.
        kept: for each step, from which row each row goes on, and with which token.
    """

    width: int
    prompts: tuple[tuple[int, ...], ...]
    kept: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def checked(cls, width: int, prompts: Any, kept: Any) -> GoldenBeams:
        """One of what a file says.

        Raises:
            TypeError, ValueError: it is damaged.
        """
        rows = tuple(tuple(map(int, row)) for row in prompts)
        steps = tuple(tuple((int(row), int(token)) for row, token in step) for step in kept)
        count = width * len(rows)
        for step in steps:
            if len(step) != count or any(not 0 <= row < count or token < 0 for row, token in step):
                raise ValueError(f"a step is not of {count} rows")
        return cls(width, rows, steps)


@dataclass(frozen=True, slots=True)
class GoldenTokens:
    """What all processes of a golden run chose.

    Attributes:
        path: the dump, as it was given.
        requests: in the order of the run, by rank; rank -1 where there is none.
        beams: its beam searches, likewise.
    """

    path: str
    requests: Mapping[int, tuple[GoldenRequest, ...]]
    beams: Mapping[int, tuple[GoldenBeams, ...]] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Tokens of the longest request."""
        chosen = [len(each.chosen) for side in self.requests.values() for each in side]
        return max(chosen + [len(each.kept) for side in self.beams.values() for each in side])

    @property
    def generations(self) -> int:
        """Generations of the process that has most."""
        numbers = [len({each.generation for each in side}) for side in self.requests.values()]
        return max(numbers + [len(side) for side in self.beams.values()])

    def of_rank(self, rank: int) -> tuple[GoldenRequest, ...]:
        """The requests of a rank; those of the first one where golden has no such rank."""
        return self.requests.get(rank) or next(iter(self.requests.values()), ())

    def beams_of_rank(self, rank: int) -> tuple[GoldenBeams, ...]:
        """The beam searches of a rank; those of the first one where golden has no such rank."""
        return self.beams.get(rank) or next(iter(self.beams.values()), ())

    def to_json(self) -> str:
        """What :meth:`from_json` reads."""
        requests = {rank: [asdict(each) for each in side] for rank, side in self.requests.items()}
        beams = {rank: [asdict(each) for each in side] for rank, side in self.beams.items()}
        return json.dumps({"path": self.path, "requests": requests, "beams": beams})

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
            beams = {
                int(rank): tuple(GoldenBeams.checked(**each) for each in side)
                for rank, side in values["beams"].items()
            }
            return cls(str(values["path"]), requests, beams)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"the tokens to follow are not readable ({error}); start through ait llm dump"
            ) from error
