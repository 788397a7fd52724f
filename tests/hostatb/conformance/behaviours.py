"""Programs that show how the runtime behaves towards the probe where no trace was recorded."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import operators as ops
from jobs import run_jobs
from programs import GAMMA, WEIGHT, Buffer, Call, X, decoder_layer, demo_layer

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.native import (
    EMPTY_TENSOR,
    NativeContext,
    NativeGraph,
    NativeLeaf,
    NativeStatusError,
    NativeTensor,
    report_model,
)
from ait_llm.hostatb.spec import Kernel, Plan


def _status(call: Callable[[], object]) -> int:
    try:
        call()
    except NativeStatusError as error:
        return error.status
    return 0


def _add(context: NativeContext) -> Call:
    inputs = [Buffer(X, ops.pattern(X, start).tobytes()) for start in (1, 2)]
    return Call(context, ops.add(), inputs)


def one_add(job: dict[str, Any]) -> dict[str, Any]:
    """Setup and Execute of a single operation, twice; the statuses."""
    with NativeContext(job.get("device", 0)) as context:
        call = _add(context)
        setups, executes = [], []
        for _ in range(2):
            setups.append(_status(call.setup))
            executes.append(_status(call.execute))
    return {"setup": setups, "execute": executes}


def new_context(job: dict[str, Any]) -> int:
    """Status of creating a context."""
    return _status(lambda: NativeContext(0))


def offer_model(job: dict[str, Any]) -> int:
    """Status of offering a topology."""
    return _status(lambda: report_model("DemoModel", '{"modelName":"DemoModel"}'))


class _Fill:
    """One kernel that fills its output with the given values."""

    def __init__(self, desc: TensorDesc, values: Sequence[float]) -> None:
        assert desc.dtype.numpy_type is not None
        self._desc = desc
        self._bytes = np.array(values).astype(desc.dtype.numpy_type).tobytes()

    def infer_shape(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        return [self._desc]

    def plan(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> Plan:
        out = (len(inputs),)
        return Plan((Kernel("FillKernel", "FillOperation", "{}", (), out, 0, "fill"),))

    def run(
        self, kernel: int, inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]
    ) -> None:
        ctypes.memmove(outputs[0].pointer, self._bytes, len(self._bytes))


def fill(job: dict[str, Any]) -> dict[str, Any]:
    """Two operations that produce the given values in turn; statuses and what they stored."""
    desc = TensorDesc(DType.from_label(job["dtype"]), (len(job["values"][0]),))
    statuses, stored = [], []
    with NativeContext(0) as context:
        for values in job["values"]:
            call = Call(context, NativeLeaf("FillOperation", _Fill(desc, values), 0, 1), [])
            call.setup()
            statuses.append(_status(call.execute))
            tensor = call.outputs[0].tensor
            data = ctypes.string_at(tensor.pointer, tensor.size)
            stored.append(np.frombuffer(data, desc.dtype.numpy_type).astype(float).tolist())
    return {"execute": statuses, "stored": stored}


def empty_tensor(job: dict[str, Any]) -> None:
    """An operation whose second input is absent, and whose third has lost its memory."""
    with NativeContext(0) as context:
        leaf = NativeLeaf("FillOperation", _Fill(X, [0.0] * X.elements), 3, 1)
        first = Buffer(X, bytes(X.byte_count))
        out = Buffer(X, bytes(X.byte_count))
        ins = [first.tensor, EMPTY_TENSOR, NativeTensor(X, 0, X.byte_count)]
        leaf.setup(context, ins, [out.tensor])
        leaf.execute(context, ins, [out.tensor])


class _Broken(_Fill):
    def run(
        self, kernel: int, inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]
    ) -> None:
        raise ValueError("the weights are gone")


def broken_node(job: dict[str, Any]) -> dict[str, Any]:
    """A graph whose first node fails; the error that Python sees."""
    with NativeContext(0) as context:
        graph = NativeGraph("Layer", 1, 1, 1)
        broken = _Broken(X, [0.0] * X.elements)
        graph.add_node(NativeLeaf("BrokenOperation", broken, 1, 1), (0,), (2,))
        graph.add_node(ops.swish(), (2,), (1,))
        call = Call(context, graph, [Buffer(X, bytes(X.byte_count))])
        call.setup()
        try:
            call.execute()
        except NativeStatusError as error:
            return {"status": error.status, "text": str(error), "cause": repr(error.__cause__)}
    raise AssertionError("the graph did not fail")


def many_threads(job: dict[str, Any]) -> int:
    """Eight threads with a layer each, three rounds; the number of failures."""
    failures = []

    def work() -> None:
        with NativeContext(0) as context:
            layer = decoder_layer()
            descs = (X, GAMMA, WEIGHT, WEIGHT)
            inputs = [Buffer(d, ops.pattern(d, i + 1).tobytes()) for i, d in enumerate(descs)]
            for _ in range(3):
                failures.append(_status(Call(context, layer, inputs).run))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(status != 0 for status in failures)


def other_shapes(job: dict[str, Any]) -> dict[str, int]:
    """A layer set up for one batch, then for another, then back."""
    with NativeContext(0) as context:
        layer = demo_layer()
        weights = [Buffer(d, bytes(d.byte_count)) for d in (GAMMA, WEIGHT)]
        for rows in (4, 1, 4):
            desc = TensorDesc(DType.FLOAT16, (rows, 32))
            Call(context, layer, [Buffer(desc, bytes(desc.byte_count)), *weights]).run()
    return {}


if __name__ == "__main__":
    sys.exit(
        run_jobs(
            {
                "one_add": one_add,
                "new_context": new_context,
                "offer_model": offer_model,
                "fill": fill,
                "empty_tensor": empty_tensor,
                "broken_node": broken_node,
                "many_threads": many_threads,
                "other_shapes": other_shapes,
            }
        )
    )
