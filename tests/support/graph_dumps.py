"""A small captured graph with numbers that a test knows: two layers of a product and a sum."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.core import TensorDesc
from ait_llm.formats import dtype_of, write_tensor

Array = np.ndarray[Any, np.dtype[Any]]
LINEAR = {"hasBias": False, "transposeB": True}
ADD = {"elewiseType": 8}
MODEL = "Tiny"


@dataclass
class GraphDump:
    """``out = Layer(Layer(x))`` where ``Layer(x) = x . weight^T + x``, in float32.

    Attributes:
        root: the dump.
        scale: what my product of each layer is off by, as a factor.
        linear: type of the products.
    """

    root: Path
    scale: Sequence[float] = (1.0, 1.0)
    linear: str = "LinearOperation"
    x: Array = field(default_factory=lambda: _draw(1, (4, 8)))
    weights: Sequence[Array] = field(default_factory=lambda: [_draw(2, (8, 8)), _draw(3, (8, 8))])

    def golden(self) -> dict[str, Array]:
        """Every value in float64, by operation and tensor."""
        return self._values((1.0, 1.0), np.float64)

    def mine(self) -> dict[str, Array]:
        """Every value as my run had it, in float32."""
        return self._values(self.scale, np.float32)

    def _values(self, scale: Sequence[float], dtype: Any) -> dict[str, Array]:
        found: dict[str, Array] = {}
        x = self.x.astype(dtype)
        for layer, weight in enumerate(self.weights):
            with np.errstate(invalid="ignore"):  # an infinite scale is a fault like any other
                product = (x @ weight.astype(dtype).T * dtype(scale[layer])).astype(dtype)
                total = product + x
            found |= {f"{layer}_0": product, f"{layer}_1": total, f"{layer}": total}
            x = total
        return found

    def write(self, *, members: bool = True, phase: str = "after", graphs: bool = True) -> Path:
        """Write the dump; without its members only the layers themselves are there."""
        mine = self.mine()
        x = self.x
        for layer, weight in enumerate(self.weights):
            product, total = mine[f"{layer}_0"], mine[f"{layer}_1"]
            self._operation(f"{layer}_Layer", [x, weight], [total], phase)
            if members:
                inner = f"{layer}_Layer/0_{self.linear}"
                self._operation(inner, [x, weight], [product], phase, LINEAR)
                inner = f"{layer}_Layer/1_ElewiseOperation"
                self._operation(inner, [product, x], [total], phase, ADD)
            x = total
        if graphs:
            self._topology()
        return self.root

    def tensors(self) -> Path:
        """The folder of the only execution count."""
        return self.root / "tensors" / "0_4242" / "0"

    def _operation(
        self,
        path: str,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        phase: str,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        folder = self.tensors() / path / phase
        folder.mkdir(parents=True)
        for word, arrays in (("in", inputs), ("out", outputs)):
            for index, array in enumerate(arrays):
                desc = TensorDesc(dtype_of(array), array.shape)
                write_tensor(folder / f"{word}tensor{index}.bin", array, desc)
        if params is not None:
            (folder.parent / "op_param.json").write_text(json.dumps(params))

    def _topology(self) -> None:
        nodes = []
        for layer in range(len(self.weights)):
            before = f"{MODEL}_input_0" if layer == 0 else f"{MODEL}_internal_{layer - 1}"
            after = f"{MODEL}_internal_{layer}"
            if layer == len(self.weights) - 1:
                after = f"{MODEL}_output_0"
            weight, inner = f"{MODEL}_weight_{layer}", f"Layer_{layer}_internal_0"
            names = f"{self.linear}_{layer}_0", f"ElewiseOperation_{layer}_1"
            members = [
                _node(names[0], self.linear, LINEAR, [before, weight], [inner]),
                _node(names[1], "ElewiseOperation", ADD, [inner, before], [after]),
            ]
            own = _node(f"Layer_{layer}", "Layer", "", [before, weight], [after])
            nodes.append({**own, "internalTensors": [inner], "nodes": members})
        model = {
            "modelName": MODEL,
            "inTensors": [f"{MODEL}_input_0"],
            "outTensors": [f"{MODEL}_output_0"],
            "weightTensors": [f"{MODEL}_weight_{n}" for n in range(len(self.weights))],
            "nodes": nodes,
        }
        layers = [("layer", str(node["opName"]), node) for node in nodes]
        for level, name, graph in (("model", MODEL, model), *layers):
            file = self.root / level / "4242" / f"{name}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(graph))


def _node(
    name: str, op_type: str, param: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    return {
        "opName": name,
        "opType": op_type,
        "param": param,
        "inTensors": list(inputs),
        "outTensors": list(outputs),
    }


def _draw(seed: int, shape: tuple[int, ...]) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) / 2).astype(np.float32)
