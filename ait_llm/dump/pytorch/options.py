"""Settings of a PyTorch capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.core import StepRange
from ait_llm.dump.pytorch.selection import ModuleSelection
from ait_llm.dump.pytorch.writer import DEFAULT_QUEUE_BYTES


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What a capture records.

    Attributes:
        output: folder in which ``ait_dump`` is made; absolute.
        steps: generation steps to record.
        selection: modules to record.
        inputs, outputs: which sides of a call to record.
        data: save tensors.
        statistics: write minimum, maximum, mean, norm and the counts of NaN and Inf.
        descriptions: write rows like those of ``statistics`` without computing any.
        modules: record what the selected modules receive and return.
        operators: record every aten operator below the selected modules.
        own_code: of operators those alone that the code of a selected module calls itself, and of
            weights its own: nothing of its members.
        device_id: record only on the accelerator with this index; None for every device.
        weights: also save parameters and buffers, once.
        warmup: generations at the start that do not count.
        queue_bytes: bytes that may wait to be written.
        run: name of the launcher's run, in the header of the ledger.
        survey: only note what would be saved, see :mod:`ait_llm.dump.pytorch.survey`.
        follow: dump of the golden run whose tokens this one takes; None for its own.
        budget: bytes that may be written by all processes of the run; None for no limit.
        channel: folder in which these processes count them; None counts this one alone.
        patches: plan of values that take the place of the program's own, see
            :mod:`ait_llm.dump.pytorch.patching`; None changes nothing.
    """

    output: Path
    steps: StepRange
    selection: ModuleSelection = field(default_factory=ModuleSelection)
    inputs: bool = True
    outputs: bool = True
    data: bool = True
    statistics: bool = False
    descriptions: bool = False
    modules: bool = True
    operators: bool = False
    own_code: bool = False
    device_id: int | None = None
    weights: bool = False
    warmup: int = 0
    queue_bytes: int = DEFAULT_QUEUE_BYTES
    run: str = ""
    survey: bool = False
    follow: Path | None = None
    budget: int | None = None
    channel: str | None = None
    patches: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """The settings as the ledger's header shows them."""
        return {
            "steps": str(self.steps),
            "module_types": [entry.__qualname__ for entry in self.selection.types],
            "module_names": list(self.selection.names),
            "type_prefixes": list(self.selection.type_prefixes),
            "layers": [list(pair) for pair in self.selection.layers],
            "inputs": self.inputs,
            "outputs": self.outputs,
            "data": self.data,
            "statistics": self.statistics,
            "descriptions": self.descriptions,
            "modules": self.modules,
            "operators": self.operators,
            **({"own_code": True} if self.own_code else {}),
            "device_id": self.device_id,
            "weights": self.weights,
            "warmup": self.warmup,
            "queue_bytes": self.queue_bytes,
            **({"run": self.run} if self.run else {}),
            **({"follow": str(self.follow)} if self.follow is not None else {}),
            **({"budget": self.budget} if self.budget is not None else {}),
            **({"patches": str(self.patches)} if self.patches is not None else {}),
        }
