"""Values of another run that take the place of a program's own, as files in a folder.

A plan names a file for each place; :mod:`ait_llm.transplanting` writes it, and the program reads it
while it runs. A place is a tensor, by the path of its file in a capture:
``{step}/{module or operator}/{name}``. Needs no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.errors import FormatError
from ait_llm.formats.writing import new_file


@dataclass(frozen=True, slots=True)
class Patch:
    """What is done to one value.

    Attributes:
        file: name of the ``.npy`` file with the numbers.
        adds: they are added; else they take its place.
        size: how many elements the value has in all; 0 where that may change from run to run.
        at: name of the file with the elements that are meant, counted in row-major order; empty
            for all of them.
        scale: the share of the numbers that is added.
    """

    file: str
    adds: bool
    size: int
    at: str = ""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Margin:
    """The difference of two numbers of a value.

    Attributes:
        key: the place of the value.
        plus, minus: the elements, counted in row-major order.
    """

    key: str
    plus: int
    minus: int


@dataclass(slots=True)
class Patches:
    """The patches of one run, and what became of them.

    Attributes:
        plan: the file that says so; those of the patches are beside it.
        places: by the path of the value.
        recorded: the values that are captured; None for all.
        margins: whose change by the numbers of each place is computed; empty for none.
        changes: of each margin by each place, to first order.
        done: places whose value was changed.
        refused: places where it could not be, and why.
        resized: places whose value has another size than in the run that the patches are for.
    """

    plan: Path
    places: dict[str, Patch]
    recorded: frozenset[str] | None
    margins: Sequence[Margin] = ()
    changes: list[dict[str, float]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    resized: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, plan: Path) -> Patches:
        """What :meth:`write` wrote.

        Raises:
            FormatError: the plan is damaged.
        """
        try:
            values = json.loads(plan.read_text("utf-8"))
            places = {key: Patch(**each) for key, each in values["places"].items()}
            recorded = values["recorded"]
            margins = [Margin(**each) for each in values["margins"]]
            return cls(plan, places, None if recorded is None else frozenset(recorded), margins)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(plan, f"is no plan of patches: {error}") from None

    def write(self) -> None:
        """Write the plan; the files are there."""
        values: dict[str, Any] = {
            "places": {key: asdict(each) for key, each in self.places.items()},
            "recorded": None if self.recorded is None else sorted(self.recorded),
            "margins": [asdict(each) for each in self.margins],
        }
        with new_file(self.plan) as file:
            file.write(json.dumps(values).encode())

    def close(self) -> None:
        """Say beside the plan what became of them in this process."""
        values = {
            "done": sorted(self.done),
            "refused": self.refused,
            "resized": sorted(self.resized),
            "changes": self.changes,
        }
        with new_file(self._done(str(os.getpid()))) as file:
            file.write(json.dumps(values).encode())

    def outcome(self) -> Patches:
        """The same with what all processes of the run have said."""
        for path in sorted(self.plan.parent.glob(self._done("*").name)):
            values = json.loads(path.read_text("utf-8"))
            self.done.update(values["done"])
            self.refused |= values["refused"]
            self.resized.update(values["resized"])
            if any(values["changes"]):
                self.changes = values["changes"]
        return self

    def _done(self, process: str) -> Path:
        return self.plan.with_name(f"{self.plan.stem}_done_{process}.json")
