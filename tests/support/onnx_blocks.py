"""A graph of two blocks of norm, projections and GELU, in ONNX, operator by operator.

ONNX Runtime fuses it: a sum and the norm behind it, a product and its bias, the five nodes of GELU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WIDTH, INNER, VOCABULARY, LAYERS = 16, 32, 40, 2
IDS = np.array([[3, 1, 4, 1, 5]])


class _Blocks:
    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def keep(self, name: str, value: Any) -> str:
        import onnx

        self.weights.append(onnx.numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def weight(self, name: str, *shape: int, around: float = 0.0, by: float = 0.4) -> str:
        return self.keep(name, around + by * self._random.normal(size=shape))

    def node(self, kind: str, inputs: list[str], name: str, **about: Any) -> str:
        import onnx

        self.nodes.append(onnx.helper.make_node(kind, inputs, [f"{name}.out"], name=name, **about))
        return f"{name}.out"

    def norm(self, x: str, name: str) -> str:
        weight = self.weight(f"{name}.weight", WIDTH, around=1.0, by=0.1)
        bias = self.weight(f"{name}.bias", WIDTH)
        return self.node("LayerNormalization", [x, weight, bias], name, epsilon=1e-5)

    def linear(self, x: str, name: str, width: int, to: int) -> str:
        made = self.node("MatMul", [x, self.weight(f"{name}.weight", width, to)], name)
        return self.node("Add", [made, self.weight(f"{name}.bias", to)], f"{name}_bias")

    def gelu(self, x: str, name: str) -> str:
        erf = self.node("Erf", [self.node("Div", [x, "root"], f"{name}_div")], f"{name}_erf")
        plus = self.node("Add", [erf, "one"], f"{name}_plus")
        return self.node("Mul", [self.node("Mul", [x, plus], f"{name}_mul"), "half"], name)


def blocks(path: Path, seed: int = 0) -> Path:
    """Write the model; it takes ``ids`` of the shape of :data:`IDS`."""
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto
    made = _Blocks(seed)
    for name, value in (("half", 0.5), ("one", 1.0), ("root", 2**0.5)):
        made.keep(name, value)
    h = made.node("Gather", [made.weight("table", VOCABULARY, WIDTH, by=1.0), "ids"], "embed")
    for layer in range(LAYERS):
        place = f"layers.{layer}"
        x = made.linear(made.norm(h, f"{place}.norm"), f"{place}.up", WIDTH, INNER)
        x = made.linear(made.gelu(x, f"{place}.gelu"), f"{place}.down", INNER, WIDTH)
        h = made.node("Add", [h, x], f"{place}.residual")
    x = made.norm(h, "norm")
    made.node("MatMul", [x, made.weight("head.weight", WIDTH, VOCABULARY, by=1.0)], "head")
    graph = helper.make_graph(
        made.nodes,
        "blocks",
        [helper.make_tensor_value_info("ids", kind.INT64, IDS.shape)],
        [helper.make_tensor_value_info("head.out", kind.FLOAT, [*IDS.shape, VOCABULARY])],
        made.weights,
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path
