"""A captured run of ATB, whose graph is computed again with golden operators.

ATB lets nobody change a value while it runs. So golden is computed from the dump itself, and the
errors that operators of mine introduced are put into it: all of them make the answer of mine, and
those that are healed are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.compare.pipeline import FoundMatches
from ait_llm.dump.patches import Patch
from ait_llm.errors import AitError
from ait_llm.replay import replay
from ait_llm.report.files import make_folder
from ait_llm.transplanting.answer import Answer, Damage, find_last
from ait_llm.transplanting.patched import introduced, rounding, save
from ait_llm.transplanting.places import Place, find_places, in_steps
from ait_llm.transplanting.result import Suspect
from ait_llm.transplanting.search import Found
from ait_llm.transplanting.two_runs import matched, widths_of

_PUT = "its error is not finite, and cannot be put into another run"


@dataclass(slots=True)
class ReplayedDump:
    """The side of mine in a search.

    Attributes:
        mine: an ATB dump, or a folder with one.
        folder: takes what is computed.
        places: values of mine that can be computed again.
        notes: what else must be known, a sentence each.
        differs: something differs by more than rounding.
    """

    mine: Path
    folder: Path
    places: int = 0
    notes: list[str] = field(default_factory=list)
    differs: bool = False
    _answer: Answer | None = field(default=None, init=False)
    _errors: dict[str, Patch] = field(default_factory=dict, init=False)

    def before(self) -> Damage | str:
        """The damage of mine as it is; or a sentence why it cannot be told.

        Raises:
            FormatError, UsageError: it is no ATB dump, or cannot be replayed.
        """
        golden = self.folder / "golden"
        outcome = replay(self.mine, golden)
        self.notes += [f"{each.op}: {each.reason}" for each in outcome.skipped[:3]]
        found, self.differs = matched(golden, self.mine)
        passes = [_operators([each]) for each in found]
        self._answer = find_last(passes, widths_of(found))
        if self._answer is None:
            return "the last operator of mine cannot be computed again, or was not captured"
        return self._answer.damage(self.mine)

    def suspects(self, tell: Callable[[str], None]) -> Sequence[Found]:
        """What introduces an error of its own, the largest first."""
        tell("every operator from its own inputs")
        local = self.folder / "local"
        replay(self.mine, local, mode="local")
        matches, _ = matched(local, self.mine)
        places = [each for each in _operators(matches) if _is_output(each)]
        self.places = len(places)
        make_folder(self._folder)
        found = [
            suspect
            for number, group in enumerate(in_steps(places))
            if (suspect := self._suspect(number, group)) is not None
        ]
        self._errors = {key: patch for each in found for key, patch in each.patches.items()}
        return sorted(found, key=lambda each: -each.suspect.introduced)

    def damage(self, healed: Sequence[Found], number: int) -> Damage:
        """What is left where these make no error."""
        assert self._answer is not None
        gone = {key for each in healed for key in each.patches}
        errors = {
            key: self._folder / patch.file for key, patch in self._errors.items() if key not in gone
        }
        output = self.folder / f"run{number}"
        replay(self.mine, output, errors=errors)
        return self._answer.damage(output)

    @property
    def _folder(self) -> Path:
        return self.folder / "errors"

    def _suspect(self, number: int, group: Sequence[Place]) -> Found | None:
        """What an operator of mine gives instead of what it should, from its own inputs."""
        first = group[0]
        largest, steps, patches = 0.0, [], {}
        for place in group:
            try:
                numbers = place.numbers()
            except (AitError, ValueError) as error:
                self.notes.append(f"{place.op} {place.name} is left as it is: {error}")
                continue
            own = place.mine_at(self.mine, numbers)
            if own is None or numbers.at is not None:
                continue
            size, correction = introduced(numbers.values, own)
            if size <= rounding(place.dtype):
                continue
            if correction is None:
                self.notes.append(f"{place.op} {place.name} is left as it is: {_PUT}")
                continue
            largest = max(largest, size)
            steps.append(place.step)
            name = f"error{number}_{place.step}.npy"
            save(self._folder / name, -correction)
            patches[place.key] = Patch(name, adds=True, size=place.size)
        if not patches:
            return None
        _, call, _ = first.suspect
        suspect = Suspect(first.op, first.op_type, first.name, call, tuple(steps), largest)
        return Found(suspect, patches)


def _operators(found: FoundMatches) -> list[Place]:
    """The places of operators; graphs hand on what these make."""
    return [each for each in find_places(found) if not each.matches[0].mine.operation.is_graph]


def _is_output(place: Place) -> bool:
    return place.matches[0].mine.tensor.role == "out"
