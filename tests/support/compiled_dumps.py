"""Small dumps of one compiled model, as a graph engine and as FX nodes leave them.

The model is ``topk(x.float() ** 2, 3)`` with x in float16. One FX node becomes several operators of
which only the last is named, and the results of another are named on two operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from ge_dump_files import BF16, FLOAT, FLOAT16, INT32, INT64, Stored, of, write_file

Array = np.ndarray[Any, np.dtype[Any]]

_BEGAN = 1732533825000000  # microseconds
_TYPES = {"float32": FLOAT, "float16": FLOAT16, "int32": INT32, "int64": INT64, "bfloat16": BF16}
_NARROW = "DT_FLOAT"


def graph_text(number: int = 1, narrow: str = _NARROW) -> str:
    """The graph that the framework hands over; ``narrow`` is the type that the product is cast to.

    Written after torchair's text format by hand.
    """

    def op(name: str, kind: str, inputs: str = "", outputs: str = "output_desc { }") -> str:
        edges = " ".join(f'input: "{edge}"' for edge in inputs.split())
        return f'op {{ name: "{name}" type: "{kind}" {edges} {outputs} }}\n'

    def named(fx: str, dtype: str) -> str:
        attribute = f'attr {{ key: "_fx_tensor_name" value {{ s: "{fx}" }} }}'
        return f"output_desc {{ dtype: {dtype} {attribute} }}"

    return f'name: "graph_{number}"\n' + "".join(
        [
            op("arg0_1", "Data"),
            op("Cast", "Cast", "arg0_1:0", named("_to_copy-aten._to_copy.OUTPUT.0", "DT_FLOAT")),
            op("Mul", "Mul", "Cast:0 Cast:0"),
            op("Cast_1", "Cast", "Mul:0", named("mul_5-aten.mul.Tensor.OUTPUT.0", narrow)),
            op("Const", "Const"),
            op(
                "TopKV2",
                "TopKV2",
                "Cast_1:0 Const:0 Mul:-1",
                named("topk-aten.topk.OUTPUT.0", narrow) + " output_desc { }",
            ),
            op("Cast_2", "Cast", "TopKV2:1", named("topk-aten.topk.OUTPUT.1", "DT_INT64")),
            op("NetOutput", "NetOutput", "TopKV2:0 Cast_2:0", ""),
        ]
    )


@dataclass
class CompiledRun:
    """One folder with dumps of the model.

    Attributes:
        root: the folder.
        narrow: type that the product is cast to.
    """

    root: Path
    narrow: type = np.float32

    def values(self, x: Array) -> dict[str, Array]:
        """Every tensor of the model."""
        wide = x.astype(np.float32)
        product = wide * wide
        cast = product.astype(self.narrow)
        order = np.argsort(-cast.astype(np.float32), axis=-1, kind="stable")[..., :3]
        return {
            "x": x,
            "wide": wide,
            "product": product,
            "cast": cast,
            "k": np.int64([3]),
            "top": np.take_along_axis(cast, order, -1),
            "indices": order.astype(np.int32),
            "wide_indices": order.astype(np.int64),
        }

    def graph(self, number: int = 1, *, rank: int = 0, text: str | None = None) -> Path:
        """Write the graph file."""
        self.root.mkdir(parents=True, exist_ok=True)
        name = (
            f"dynamo_original_graph_{number}_rank_{rank}_pid_7_ts_2024112519234500000{number}.txt"
        )
        path = self.root / name
        narrow = "DT_BF16" if self.narrow is ml_dtypes.bfloat16 else _NARROW
        path.write_text(text or graph_text(number, narrow))
        return path

    def ge(
        self,
        x: Array,
        *,
        number: int = 1,
        step: int = 0,
        call: int = 0,
        rank: int | None = None,
        device: int = 0,
        fused: bool = True,
        changed: dict[str, Array] | None = None,
        role: str = "both",
    ) -> Path:
        """Write one execution.

        ``changed`` replaces tensors by their names in :meth:`values`; ``role`` may be ``in`` or
        ``out``, as with ``dump_mode``.
        """
        values = self.values(x) | (changed or {})
        top = self.root / f"worldsize2_global_rank{rank}" if rank is not None else self.root
        folder = top / f"20241125192345/{device}/graph_{number}_{number - 1}/{number}/{step}"
        moment = _BEGAN + 1000 * call
        product = [
            ("AutomaticBufferFusionOp.MulCast_1", "wide wide", ("cast:Cast_1:0",)),
        ]
        if not fused:
            product = [
                ("Mul.Mul", "wide wide", ("product:Mul:0",)),
                ("Cast.Cast_1", "product", ("cast:Cast_1:0",)),
            ]
        files = [
            ("Cast.Cast", "x", ("wide:Cast:0",)),
            *product,
            ("TopKV2.TopKV2", "cast k", ("top:TopKV2:0", "indices:TopKV2:1")),
            ("Cast.Cast_2", "indices", ("wide_indices:Cast_2:0",)),
        ]
        for place, (name, inputs, outputs) in enumerate(files):
            read = [_stored(values[each]) for each in inputs.split()]
            written = [_stored(values[each.split(":")[0]]) for each in outputs]
            if role == "in":
                written = []
            elif role == "out":
                read = []
            write_file(folder / f"{name}.{place}.6.{moment + place}", read, written)
        return folder

    def fx(self, x: Array, *, number: int = 1, step: int = 0, call: int = 0, rank: int = 0) -> Path:
        """Write one execution of the nodes."""
        folder = self.root / f"worldsize1_global_rank{rank}/graph_{number}/{step}"
        return self._nodes(folder, x, call)

    def old_fx(self, x: Array, *, step: int, call: int = 0) -> Path:
        """The same as torchair of early 2024 wrote it: steps from 1, graphs by time."""
        return self._nodes(self.root / f"gm_20240301120000000000_dump/{step}", x, call)

    def _nodes(self, folder: Path, x: Array, call: int) -> Path:
        values = self.values(x)
        folder.mkdir(parents=True)
        files = [
            ("_to_copy-aten._to_copy.default", ("x",), ("wide",)),
            ("mul_5-aten.mul.Tensor", ("wide", "wide"), ("cast",)),
            ("topk-aten.topk.default", ("cast", "k"), ("top", "wide_indices")),
        ]
        for place, (name, inputs, outputs) in enumerate(files):
            stamp = f"202411251923{call:02}{place:06}"
            for word, names in (("INPUT", inputs), ("OUTPUT", outputs)):
                for index, each in enumerate(names):
                    array = values[each]
                    if each == "k":
                        array = array.reshape(())
                    if array.dtype == ml_dtypes.bfloat16:
                        array = array.astype(np.float32)
                    np.save(folder / f"{name}.{word}.{index}.{stamp}.npy", array)
        return folder


def _stored(array: Array) -> Stored:
    return of(array, _TYPES[array.dtype.name])


def request(seed: int = 0, rows: int = 4) -> Array:
    """An input of the model, float16 [rows, 8]."""
    return np.random.default_rng(seed).normal(size=(rows, 8)).astype(np.float16)
