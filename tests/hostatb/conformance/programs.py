"""The programs of the recorded traces, rebuilt on the native runtime.

Run as ``python programs.py JOBS.json`` with the recording probe preloaded: each job names a
program, the file to record to, and what the probe and the device do.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import operators as ops
from jobs import run_jobs

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.native import (
    NativeContext,
    NativeGraph,
    NativeOperation,
    NativeStatusError,
    NativeTensor,
    Status,
)

X = TensorDesc(DType.FLOAT16, (4, 32))
WEIGHT = TensorDesc(DType.FLOAT16, (32, 32))
GAMMA = TensorDesc(DType.FLOAT16, (32,))


class Buffer:
    """A tensor that owns its memory."""

    def __init__(self, desc: TensorDesc, data: bytes) -> None:
        self._memory = ctypes.create_string_buffer(data, len(data))
        self.tensor = NativeTensor(desc, ctypes.addressof(self._memory), len(data))

    def __bytes__(self) -> bytes:
        return self._memory.raw


def _input(desc: TensorDesc, start: int) -> Buffer:
    return Buffer(desc, ops.pattern(desc, start).tobytes())


def _inputs(*descs: TensorDesc) -> list[Buffer]:
    """Inputs with the recorded patterns: input N starts with element N + 1."""
    return [_input(desc, index + 1) for index, desc in enumerate(descs)]


class Call:
    """An operation with its tensors, as the recorded programs use them."""

    def __init__(
        self, context: NativeContext, operation: NativeOperation, inputs: Sequence[Buffer]
    ) -> None:
        self.context = context
        self.operation = operation
        self.inputs = inputs
        descs = operation.infer_shape([each.tensor.desc for each in inputs])
        self.outputs = [Buffer(desc, bytes(desc.byte_count)) for desc in descs]

    def setup(self) -> None:
        self.operation.setup(self.context, *self._tensors())

    def execute(self) -> None:
        self.operation.execute(self.context, *self._tensors())

    def run(self) -> list[Buffer]:
        self.setup()
        self.execute()
        return self.outputs

    def _tensors(self) -> tuple[list[NativeTensor], list[NativeTensor]]:
        return [each.tensor for each in self.inputs], [each.tensor for each in self.outputs]


def demo_layer(name: str = "Demo_layer") -> NativeGraph:
    """RmsNorm, Linear and a residual add. Tensors: x, gamma, weight; out; two internals."""
    graph = NativeGraph(name, 3, 1, 2)
    graph.add_node(ops.rms_norm(), (0, 1), (4,))
    graph.add_node(ops.linear(), (4, 2), (5,))
    graph.add_node(ops.add(), (5, 0), (3,))
    return graph


def _linear_then(name: str, second: NativeOperation) -> NativeGraph:
    graph = NativeGraph(name, 2, 1, 1)
    graph.add_node(ops.linear(), (0, 1), (3,))
    graph.add_node(second, (3,), (2,))
    return graph


def decoder_layer() -> NativeGraph:
    """Tensors: x, gamma, two weights; out; normed, attention, residual, mlp."""
    graph = NativeGraph("Decoder_layer", 4, 1, 4)
    graph.add_node(ops.rms_norm(), (0, 1), (5,))
    graph.add_node(_linear_then("Attention", ops.muls()), (5, 2), (6,))
    graph.add_node(ops.add(), (0, 6), (7,))
    graph.add_node(_linear_then("Mlp", ops.swish()), (7, 3), (8,))
    graph.add_node(ops.add(), (7, 8), (4,))
    return graph


def _open() -> NativeContext:
    context = NativeContext(0)
    context.set_stream()
    return context


def _expect(status: Status, call: Callable[[], None]) -> None:
    reached: int = Status.NO_ERROR
    try:
        call()
    except NativeStatusError as error:
        reached = error.status
    assert reached == status


def single() -> None:
    with _open() as context:
        Call(context, ops.add(), _inputs(X, X)).run()


def graph3(name: str = "Demo_layer") -> None:
    with _open() as context:
        Call(context, demo_layer(name), _inputs(X, GAMMA, WEIGHT)).run()


def graph3_stopped() -> None:
    with _open() as context:
        call = Call(context, demo_layer(), _inputs(X, GAMMA, WEIGHT))
        call.setup()
        _expect(Status.RT_FAIL, call.execute)


def nested(rounds: int) -> None:
    with _open() as context:
        layer = decoder_layer()
        for _ in range(rounds):
            Call(context, layer, _inputs(X, GAMMA, WEIGHT, WEIGHT)).run()


def two_same() -> None:
    with _open() as context:
        adds = [ops.add(), ops.add()]
        for _ in range(2):
            for operation in adds:
                Call(context, operation, _inputs(X, X)).run()


def model() -> None:
    table = _input(TensorDesc(DType.FLOAT16, (64, 32)), 5)
    head = _input(TensorDesc(DType.FLOAT16, (64, 32)), 6)
    weights = _inputs(X, GAMMA, WEIGHT, WEIGHT)[1:]
    with _open() as context:
        embedding, last = ops.gather(), ops.linear()
        layers = [decoder_layer(), decoder_layer()]
        for tokens in ([1, 2, 3, 0], [1]):
            ids = TensorDesc(DType.INT64, (len(tokens),))
            indices = Buffer(ids, np.array(tokens, np.int64).tobytes())
            hidden = Call(context, embedding, [table, indices]).run()
            for layer in layers:
                hidden = Call(context, layer, [hidden[0], *weights]).run()
            Call(context, last, [hidden[0], head]).run()


def setup_once_execute_twice() -> None:
    with _open() as context:
        call = Call(context, ops.add(), _inputs(X, X))
        call.setup()
        call.execute()
        call.execute()


def setup_twice_execute_once() -> None:
    with _open() as context:
        call = Call(context, demo_layer(), _inputs(X, GAMMA, WEIGHT))
        call.setup()
        call.setup()
        call.execute()


def setup_failure() -> None:
    with _open() as context:
        call = Call(context, ops.add(), _inputs(X, X))
        one_input = Call(context, call.operation, call.inputs)
        one_input.inputs = call.inputs[:1]
        _expect(Status.INVALID_IN_TENSOR_NUM, one_input.setup)
        call.run()


def plugin() -> None:
    with _open() as context:
        graph = NativeGraph("PluginGraph", 2, 1, 1)
        graph.add_node(ops.plugin(), (0,), (3,))
        graph.add_node(ops.add(), (3, 1), (2,))
        Call(context, graph, _inputs(X, X)).run()


def threads() -> None:
    first_has_id = threading.Event()

    def work(operation: NativeOperation) -> None:
        with _open() as context:
            Call(context, operation, _inputs(X, X)).run()

    ahead, behind = ops.add(on_plan=first_has_id.set), ops.add()
    worker = threading.Thread(target=work, args=(ahead,))
    worker.start()
    assert first_has_id.wait(20)
    work(behind)
    worker.join()


def multi_kernel() -> None:
    wide = TensorDesc(DType.FLOAT16, (4, 256))
    bias = TensorDesc(DType.FLOAT16, (1, 32))
    with _open() as context:
        for operation, descs in (
            (ops.softmax(), (X,)),
            (ops.linear(bias=True), (X, WEIGHT, bias)),
            (ops.split(), (X,)),
            (ops.concat(), (X, X)),
            (ops.transpose(), (X,)),
            (ops.swiglu(), (wide,)),
            (ops.cast(), (X,)),
        ):
            Call(context, operation, _inputs(*descs)).run()


def graph_launch() -> None:
    with _open() as context:
        context.set_graph_launch(True)
        call = Call(context, demo_layer(), _inputs(X, GAMMA, WEIGHT))
        call.run()
        assert (
            bytes(call.outputs[0])
            == ops.pattern(X, ops.PATTERN_OF_KERNEL["AddF16Kernel"]).tobytes()
        )
        call.run()


def event() -> None:
    with _open() as context:
        Call(context, ops.event(), []).run()


PROGRAMS: dict[str, Callable[[], None]] = {
    "single": single,
    "graph3": graph3,
    "graph3_stopped": graph3_stopped,
    "nested1": lambda: nested(1),
    "nested3": lambda: nested(3),
    "twosame": two_same,
    "model": model,
    "setup1exec2": setup_once_execute_twice,
    "setup2exec1": setup_twice_execute_once,
    "setupfail": setup_failure,
    "plugin": plugin,
    "noname": lambda: graph3(""),
    "threads": threads,
    "multikernel": multi_kernel,
    "twophase": graph3,  # the runtime launches in Execute; PreLaunch makes no call to the Probe
    "graphmode": graph_launch,
    "event": event,
}


def run(job: dict[str, Any]) -> None:
    """Run a recorded program on a device that behaves as recorded."""
    device = job["device"]
    ops.DEVICE.force_inf = device.get("outputsForcedToInf") == "1"
    ops.DEVICE.float_status = device.get("floatStatusWritten") == "1"
    ops.DEVICE.record_launches()
    PROGRAMS[job["program"]]()


if __name__ == "__main__":
    sys.exit(run_jobs(dict.fromkeys(PROGRAMS, run)))
