"""Topology of a model, as the model layer of inference engines reports it after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ait_llm.errors import OperationError
from ait_llm.hostatb import native
from ait_llm.hostatb.params.json_text import dump_json

# JSON key and word in tensor names of each kind of tensor.
_KINDS = {
    "inTensors": "input",
    "internalTensors": "internal",
    "kCacheTensors": "kCache",
    "outTensors": "output",
    "vCacheTensors": "vCache",
    "weightTensors": "weight",
}


@dataclass(slots=True)
class ModelTopology:
    """Top-level operations of a model and the tensors between them.

    Attributes:
        model_name: name of the model.
        tensors: names in the program by kind: ``input``, ``internal``, ``kCache``, ``output``,
            ``vCache``, ``weight``; reports number them (``{model}_weight_0``).
    """

    model_name: str
    tensors: dict[str, list[str]] = field(default_factory=dict)
    _nodes: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)

    def add_tensors(self, kind: str, names: Sequence[str]) -> None:
        """Append tensors.

        Raises:
            OperationError: there is no such kind.
        """
        if kind not in _KINDS.values():
            known = ", ".join(_KINDS.values())
            raise OperationError(f"unknown kind of model tensor {kind!r}; known: {known}")
        self.tensors.setdefault(kind, []).extend(names)

    def add_node(self, op_name: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Append an operation; tensors of no known name are left out, as upstream does."""
        self._nodes.append((op_name, tuple(inputs), tuple(outputs)))

    def to_json(self) -> str:
        """The report: keys in byte order, empty lists left out."""
        labels = {
            name: f"{self.model_name}_{kind}_{index}"
            for kind, names in self.tensors.items()
            for index, name in enumerate(names)
        }
        listed = {
            key: [labels[name] for name in self.tensors[kind]]
            for key, kind in _KINDS.items()
            if self.tensors.get(kind)
        }
        nodes = [
            {
                "inTensors": [labels[name] for name in inputs if name in labels],
                "opName": op_name,
                "outTensors": [labels[name] for name in outputs if name in labels],
            }
            for op_name, inputs, outputs in self._nodes
        ]
        return dump_json({**listed, "modelName": self.model_name, "nodes": nodes})


def report_model(name: str, topology: ModelTopology | Mapping[str, object] | str) -> None:
    """Offer a model's topology to the probe of model reports.

    Args:
        name: name of the model.
        topology: the report as an object, a mapping or JSON text.

    Raises:
        OperationError: a function of the probe failed.
    """
    if isinstance(topology, ModelTopology):
        text = topology.to_json()
    else:
        text = topology if isinstance(topology, str) else dump_json(topology)
    native.report_model(name, text)
