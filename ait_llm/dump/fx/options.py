"""Settings of an FX capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ait_llm.core import StepRange

EVERY_STEP = StepRange.parse("all")


@dataclass(frozen=True, slots=True)
class FxOptions:
    """What a capture records.

    Attributes:
        output: folder in which ``ait_dump`` is made; absolute.
        steps: executions of each graph to record, counted from 0 for each graph.
        nodes: globs on node names, such as ``mul_*``; empty for every node.
        targets: globs on targets, such as ``aten.mm.*``; empty for every target.
        inputs, outputs: which sides of a node to record.
        weights: kernels' inputs that are parameters of the model, too; each is saved once.
        run: name of the launcher's run, in the header of the ledger.
        survey: files have their size and no data, and the ledger counts all executions.
    """

    output: Path
    steps: StepRange = EVERY_STEP
    nodes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    inputs: bool = True
    outputs: bool = True
    weights: bool = False
    run: str = ""
    survey: bool = False

    def selects(self, node: str, target: str) -> bool:
        """True for a node of this name and target."""
        return _matches(node, self.nodes) and _matches(target, self.targets)

    def as_json(self) -> dict[str, Any]:
        """The settings as the ledger's header shows them."""
        return {
            "steps": str(self.steps),
            "nodes": list(self.nodes),
            "targets": list(self.targets),
            "inputs": self.inputs,
            "outputs": self.outputs,
            **({"weights": True} if self.weights else {}),
            **({"run": self.run} if self.run else {}),
        }


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
