"""Plants faults in graphs that ONNX Runtime optimised, and prints what ``compare`` names.

    scripts/engines/onnx_faults.py [--work DIR] [--families llama,gpt2,…]

Each is a change of one node of the graph as ONNX Runtime, or its offline tool, writes it. The graph
runs as it is, and is compared with the plain graph and with PyTorch's modules and operators. A row
for each: whether the node that was changed is named first. Captures of an
earlier run in the folder, of this script or ``onnx_fused.py``, are used again. Needs onnxscript.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from click.testing import CliRunner
from onnx_fused import LEVELS, by_the_tool, captured, exported, golden, made

from ait_llm.cli.main import ait

Change = Callable[[Any], Any]
GOLDEN = (LEVELS[0], "modules", "operators")


@dataclass(frozen=True)
class Fault:
    """A node that is changed.

    Attributes:
        family: of the model.
        graph: ``all`` for what ONNX Runtime writes, ``tool`` for what its offline tool does.
        kind: type of the node; ``product`` for products with a weight.
        number: of the node among those.
        place: of the input that is changed; the name of the attribute, or ``type``.
        change: what becomes of it. Of ``input`` it is the place of another input instead.
        part: what the capture calls the part of a fused node, behind its name.
    """

    family: str
    graph: str
    kind: str
    number: int
    place: int | str
    change: Any
    part: str = ""

    def plant(self, model: Any) -> str:
        """Change a model; the node's name in a capture."""
        node = self._node(model)
        if isinstance(self.place, int):
            self._input(model, node, self.place)
        elif self.place == "type":
            node.op_type = self.change
        elif self.place == "input":
            node.input[1] = node.input[self.change]
        else:
            values = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
            values[self.place] = self.change(values.get(self.place))
            del node.attribute[:]
            node.attribute.extend(
                onnx.helper.make_attribute(name, value) for name, value in values.items()
            )
        return node.name.strip("/").replace("/", ".") + self.part

    def _node(self, model: Any) -> Any:
        matrices = {each.name for each in model.graph.initializer if len(each.dims) == 2}
        nodes = [
            each
            for each in model.graph.node
            if each.op_type == self.kind
            or (
                self.kind == "product"
                and each.op_type in ("MatMul", "Gemm", "FusedMatMul")
                and each.input[1] in matrices
            )
        ]
        return nodes[self.number]

    def _input(self, model: Any, node: Any, place: int) -> None:
        held = {each.name: each for each in model.graph.initializer}
        for each in model.graph.node:
            if each.op_type == "Constant":
                held[each.output[0]] = each.attribute[0].t
        value = onnx.numpy_helper.to_array(held[node.input[place]])
        wrong = np.asarray(self.change(value), value.dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(wrong, "wrong"))
        node.input[place] = "wrong"


def _times(factor: float) -> Change:
    return lambda value: value * factor


def _without_column(value: Any) -> Any:
    return np.where(np.arange(value.shape[1]) == 3, 0, value)


def _lifted(value: Any) -> Any:
    return np.full_like(value, -1)


def _plus(shift: float) -> Change:
    return lambda value: value + shift


def _to(value: float) -> Change:
    return lambda _: value


_SKIP = "SkipLayerNormalization"
FAULTS = {
    "weight before a fused product": Fault("llama", "all", "product", 2, 1, _times(1.05)),
    "scale in a fused product": Fault("llama", "all", "FusedMatMul", 0, "alpha", _times(1.1)),
    "factor of a fused SiLU": Fault("llama", "all", "QuickGelu", 1, "alpha", _to(1.702)),
    "weight behind it": Fault("llama", "all", "product", 6, 1, _times(1.05)),
    "column of a weight": Fault("llama", "all", "product", 9, 1, _without_column),
    "mask that hides nothing": Fault("llama", "all", "Where", 0, 2, _lifted),
    "axis of a softmax": Fault("llama", "all", "Softmax", 1, "axis", _to(2)),
    "scale of scores": Fault("qwen3", "all", "FusedMatMul", 1, "alpha", _times(1.1)),
    "factor of SiLU": Fault("qwen3", "all", "QuickGelu", 0, "alpha", _to(1.702)),
    "cap of logits": Fault("gemma2", "all", "FusedMatMul", 2, "alpha", _times(1.1)),
    "weight of an MLP": Fault("gemma2", "all", "product", 5, 1, _times(1.05)),
    "weight of keys": Fault("gpt2", "all", "product", 0, 1, _times(1.05)),
    "scale of later scores": Fault("gpt2", "all", "FusedMatMul", 1, "alpha", _times(0.9)),
    "GELU without tanh": Fault("gpt2", "all", "FastGelu", 0, "type", "Gelu"),
    "epsilon": Fault("gpt2", "all", "LayerNormalization", 1, "epsilon", _to(1e-2)),
    "bias of a norm": Fault("gpt2", "all", "LayerNormalization", 2, 2, _plus(0.3)),
    "epsilon of a fused norm": Fault("gpt2", "tool", _SKIP, 1, "epsilon", _to(0.1)),
    "weight of a fused norm": Fault("gpt2", "tool", _SKIP, 2, 2, _times(1.2)),
    "bias in a fused GELU": Fault("bert", "tool", "BiasGelu", 0, 1, _plus(0.5), "_bias"),
    "fused GELU with tanh": Fault("bert", "tool", "BiasGelu", 1, "type", "FastGelu"),
    "epsilon of a norm": Fault("bert", "tool", _SKIP, 1, "epsilon", _to(0.1)),
    "bias before a fused norm": Fault("bert", "tool", _SKIP, 2, 4, _plus(0.5), "_bias"),
    "residual of a fused norm": Fault("bert", "tool", _SKIP, 3, "input", 0, "_sum"),
    "weight of BERT": Fault("bert", "tool", "product", 5, 1, _times(1.05)),
}


def prepared(family: str, folder: Path) -> None:
    """The graphs of a model, and what is golden."""
    if (folder / LEVELS[0]).is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    model = made(family, "eager", torch.float32)
    exported(model, folder / "model.onnx", "dynamo")
    golden(model, folder)
    captured(folder / "model.onnx", folder / LEVELS[0], LEVELS[0])


def optimised(folder: Path, graph: str) -> Path:
    """A model as ONNX Runtime, or its tool, rewrites it."""
    path = folder / f"{graph}.onnx"
    if graph == "tool" and not path.exists():
        by_the_tool(folder / "model.onnx")
    elif not path.exists():
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.optimized_model_filepath = str(path)
        providers = ["CPUExecutionProvider"]
        onnxruntime.InferenceSession(str(folder / "model.onnx"), settings, providers=providers)
    return path


def named(golden_side: Path, mine: Path, report: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the origins."""
    words = ["llm", "compare", "-gp", golden_side, "-mp", mine, "-o", report, "-j", "1", "--json"]
    done = CliRunner().invoke(ait, list(map(str, words)))
    summary = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    return done.exit_code, summary.get("origins", [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--families", default="llama,qwen3,gemma2,gpt2,bert")
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp())
    print("| model | graph | fault | node | plain graph | modules | operators |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    told = []
    for name, fault in FAULTS.items():
        if fault.family not in given.families.split(","):
            continue
        folder = work / f"{fault.family}-dynamo-eager-f32"
        prepared(fault.family, folder)
        model = onnx.load(optimised(folder, fault.graph))
        wrong = fault.plant(model)
        place = folder / name.replace(" ", "-")
        if not place.is_dir():
            place.mkdir()
            onnx.save(model, place / "wrong.onnx")
            captured(place / "wrong.onnx", place / "mine", LEVELS[0])
        right = [
            judged(wrong, *named(folder / side, place / "mine", place / f"report-{side}"))
            for side in GOLDEN
        ]
        told += right
        cells = (fault.family, fault.graph, name, f"`{wrong}`", *right)
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{told.count('yes')} of {len(told)} named first, {told.count('among')} among others.")


def judged(wrong: str, code: int, origins: Sequence[dict[str, Any]]) -> str:
    """Whether the node that was changed is named, or among the candidates; else what was said."""
    if not origins:
        return f"exit {code}"
    first = origins[0]
    if first["op"] == wrong:
        return "yes"
    return "among" if wrong in first.get("candidates", ()) else f"`{first['op']}`"


if __name__ == "__main__":
    main()
