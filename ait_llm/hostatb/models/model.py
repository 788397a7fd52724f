"""A model as inference engines on ATB hold it: top-level operations and the tensors between them.

Every node is one operation that is set up and executed on its own, so that each has its own id and
execute count. After every run the model offers its topology to the probe of model reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.errors import UsageError


@dataclass(frozen=True, slots=True)
class _Node:
    operation: torch_atb.Operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Model:
    """Nodes in execution order over tensors with names.

    Args:
        name: name of the model in reports.
        inputs: names of the tensors given at each run.
        outputs: names of the tensors that a run returns.
        weights: constant tensors by name.
        key_caches, value_caches: one tensor per layer; nodes see them as ``k_cache.{layer}`` and
            ``v_cache.{layer}`` and write into them.

    Attributes:
        name: name of the model.
        topology: what is reported.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        weights: Mapping[str, Tensor],
        key_caches: Sequence[Tensor] = (),
        value_caches: Sequence[Tensor] = (),
    ) -> None:
        self.name = name
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        keys = {f"k_cache.{layer}": tensor for layer, tensor in enumerate(key_caches)}
        values = {f"v_cache.{layer}": tensor for layer, tensor in enumerate(value_caches)}
        self._constants = {**weights, **keys, **values}
        self._known = {*self._inputs, *self._constants}
        self._nodes: list[_Node] = []
        self.topology = torch_atb.ModelTopology(name)
        for kind, names in (
            ("input", self._inputs),
            ("output", self._outputs),
            ("weight", list(weights)),
            ("kCache", list(keys)),
            ("vCache", list(values)),
        ):
            self.topology.add_tensors(kind, names)

    def add(
        self, operation: torch_atb.Operation, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """Append a node.

        Raises:
            UsageError: an input that nothing produces.
        """
        for name in inputs:
            if name not in self._known:
                raise UsageError(
                    f"node {operation.name} of model {self.name} reads {name!r}, which is neither "
                    "an input, a weight, a cache nor an output of an earlier node"
                )
        self._nodes.append(_Node(operation, tuple(inputs), tuple(outputs)))
        self._known.update(outputs)
        internal = [name for name in outputs if name not in self._outputs]
        self.topology.add_tensors("internal", internal)
        self.topology.add_node(operation.name, inputs, outputs)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Execute all nodes and report the topology if a probe asks for it.

        Args:
            inputs: a tensor for each name in ``inputs`` of the constructor.

        Returns:
            The tensors named in ``outputs`` of the constructor.
        """
        tensors = {**self._constants, **{name: inputs[name] for name in self._inputs}}
        for node in self._nodes:
            results = node.operation.forward([tensors[name] for name in node.inputs])
            tensors.update(zip(node.outputs, results, strict=True))
        torch_atb.report_model(self.name, self.topology)
        return {name: tensors[name] for name in self._outputs}
