"""The binding and the runtime without a probe: values, memory, shapes and refusals."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError, ProbeError
from ait_llm.hostatb.native import (
    NativeContext,
    NativeGraph,
    NativeLeaf,
    NativeOperation,
    NativeStatusError,
    NativeTensor,
    Status,
    library,
)
from ait_llm.hostatb.native_library import find_library, home_directory
from ait_llm.hostatb.spec import Kernel, Plan

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]

Run = Callable[[Sequence[NativeTensor], Sequence[NativeTensor]], None]


def _bytes(tensor: NativeTensor) -> bytes:
    return ctypes.string_at(tensor.pointer, tensor.size)


class Function:
    """A leaf of one kernel given as a Python function."""

    def __init__(
        self,
        run: Run,
        infer_shape: Callable[[Sequence[TensorDesc]], list[TensorDesc]] = lambda ins: [ins[0]],
        workspace: Sequence[TensorDesc] = (),
    ) -> None:
        self._run = run
        self.infer_shape = infer_shape
        self._workspace = tuple(workspace)
        self.plans = 0

    def plan(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> Plan:
        self.plans += 1
        count = len(inputs)
        outs = tuple(range(count, count + len(outputs) + len(self._workspace)))
        kernel = Kernel("TestKernel", "TestOperation", "{}", tuple(range(count)), outs, 64, "none")
        return Plan((kernel,), self._workspace)

    def run(
        self, kernel: int, inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]
    ) -> None:
        self._run(inputs, outputs)


class Host:
    """A tensor that owns its memory."""

    def __init__(self, data: bytes, desc: TensorDesc | None = None) -> None:
        self.memory = ctypes.create_string_buffer(data, len(data))
        desc = desc or TensorDesc(DType.UINT8, (len(data),))
        self.tensor = NativeTensor(desc, ctypes.addressof(self.memory), len(data))

    def __bytes__(self) -> bytes:
        return self.memory.raw


def _run(operation: NativeOperation, inputs: Sequence[Host], outputs: Sequence[Host]) -> None:
    with NativeContext() as context:
        ins, outs = [t.tensor for t in inputs], [t.tensor for t in outputs]
        operation.setup(context, ins, outs)
        operation.execute(context, ins, outs)


def _increment(inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]) -> None:
    ctypes.memmove(outputs[0].pointer, bytes(b + 1 for b in _bytes(inputs[0])), outputs[0].size)


def _leaf(run: Run = _increment, inputs: int = 1) -> NativeLeaf:
    return NativeLeaf("TestOperation", Function(run), inputs, 1)


def test_leaf_computes_into_the_callers_memory() -> None:
    out = Host(bytes(4))
    _run(_leaf(), [Host(b"\1\2\3\4")], [out])
    assert bytes(out) == b"\2\3\4\5"


def test_plan_is_kept_while_shapes_are_unchanged() -> None:
    function = Function(_increment)
    leaf = NativeLeaf("TestOperation", function, 1, 1)
    for size in (4, 4, 4, 2, 4):
        _run(leaf, [Host(bytes(size))], [Host(bytes(size))])
    assert function.plans == 3


def test_workspace_is_zeroed_memory_apart_from_the_outputs() -> None:
    seen = []

    def run(inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]) -> None:
        seen.append(_bytes(outputs[1]))
        ctypes.memset(outputs[1].pointer, 0xFF, outputs[1].size)

    workspace = [TensorDesc(DType.FLOAT32, (300,))]
    leaf = NativeLeaf("TestOperation", Function(run, workspace=workspace), 1, 1)
    out = Host(bytes(4))
    _run(leaf, [Host(bytes(4))], [out])
    _run(leaf, [Host(bytes(4))], [out])
    assert seen == [bytes(1200), bytes(1200)]
    assert bytes(out) == bytes(4)


def test_node_may_update_a_graph_input_in_place() -> None:
    graph = NativeGraph("Cache", 1, 0, 0)
    graph.add_node(_leaf(), (0,), (0,))
    graph.add_node(_leaf(), (0,), (0,))
    cache = Host(b"\5\6")
    _run(graph, [cache], [])
    assert bytes(cache) == b"\7\x08"


def test_reshape_changes_what_a_node_sees() -> None:
    seen = []

    def run(inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]) -> None:
        seen.append(inputs[0].desc.shape)
        _increment(inputs, outputs)

    graph = NativeGraph("Reshaped", 1, 1, 0)
    graph.add_node(_leaf(run), (0,), (1,), reshape=lambda index, desc: TensorDesc(desc.dtype, (4,)))
    out = Host(bytes(4))
    square = TensorDesc(DType.UINT8, (2, 2))
    assert graph.infer_shape([square]) == [TensorDesc(DType.UINT8, (4,))]
    _run(graph, [Host(b"\0\1\2\3", square)], [out])
    assert (seen, bytes(out)) == ([(4,)], b"\1\2\3\4")


def test_reshape_to_another_size_is_refused() -> None:
    graph = NativeGraph("Reshaped", 1, 1, 0)
    graph.add_node(_leaf(), (0,), (1,), reshape=lambda index, desc: TensorDesc(desc.dtype, (3,)))
    with pytest.raises(NativeStatusError, match=r"uint8 nd \[3\] over uint8 nd \[4\]"):
        graph.infer_shape([TensorDesc(DType.UINT8, (4,))])


def test_tensor_of_more_than_two_gib_keeps_its_size() -> None:
    seen = []

    def run(inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]) -> None:
        seen.append((inputs[0].size, inputs[0].desc.shape))

    count = 2**31 + 8
    memory = mmap.mmap(-1, count)  # untouched pages take no memory
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    tensor = NativeTensor(TensorDesc(DType.INT8, (2, count // 2)), pointer, count)
    leaf = _leaf(run)
    with NativeContext() as context:
        leaf.setup(context, [tensor], [tensor])
        leaf.execute(context, [tensor], [tensor])
    assert seen == [(count, (2, count // 2))]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_internal_tensors_hold_their_values_until_the_last_reader(data: st.DataObject) -> None:
    """Random graphs of leaves and nested graphs: every reader finds what was produced for it."""
    sizes = data.draw(st.lists(st.sampled_from([1, 64, 513, 2000]), min_size=1, max_size=9))
    count = len(sizes)
    failures: list[str] = []

    def copier(me: int, sources: Sequence[int]) -> Run:
        def run(inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]) -> None:
            for source, tensor in zip(sources, inputs, strict=True):
                if _bytes(tensor) != bytes([source]) * tensor.size:
                    failures.append(f"{me} reads {source}")
            ctypes.memset(outputs[0].pointer, me, outputs[0].size)

        return run

    def leaf(me: int, sources: Sequence[int]) -> NativeLeaf:
        desc = [TensorDesc(DType.UINT8, (sizes[me - 1],))]
        function = Function(copier(me, sources), lambda ins: desc)
        return NativeLeaf("TestOperation", function, len(sources), 1)

    # Tensor 0 is the graph's input, node N writes tensor N, the last one is the graph's output.
    graph = NativeGraph("Random", 1, 1, count - 1)

    def tensor_id(value: int) -> int:
        return 0 if value == 0 else 1 if value == count else value + 1

    for me in range(1, count + 1):
        sources = data.draw(st.lists(st.integers(0, me - 1), min_size=1, max_size=3))
        node: NativeOperation = leaf(me, sources)
        if data.draw(st.booleans()):
            inner = NativeGraph("Inner", len(sources), 1, 0)
            inner.add_node(node, range(len(sources)), (len(sources),))
            node = inner
        graph.add_node(node, [tensor_id(source) for source in sources], (tensor_id(me),))

    out = Host(bytes(sizes[-1]))
    _run(graph, [Host(bytes(7))], [out])
    assert failures == []
    assert bytes(out) == bytes([count]) * sizes[-1]


def test_error_of_a_leaf_is_the_cause_of_the_failed_call() -> None:
    class Refusing(Function):
        def infer_shape(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
            raise OperationError("only matrices")

        def __init__(self) -> None:
            self.plans = 0

    leaf = NativeLeaf("TestOperation", Refusing(), 1, 1)
    with pytest.raises(NativeStatusError, match="only matrices") as caught:
        leaf.infer_shape([TensorDesc(DType.INT8, (1,))])
    assert isinstance(caught.value.__cause__, OperationError)


def test_interrupt_during_a_kernel_is_not_an_operation_failure() -> None:
    def run(inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run(_leaf(run), [Host(b"x")], [Host(b"x")])


@pytest.mark.parametrize(
    ("inputs", "outputs", "status"),
    [
        ([Host(bytes(4)), Host(bytes(4))], [Host(bytes(4))], Status.INVALID_IN_TENSOR_NUM),
        ([Host(bytes(4))], [Host(bytes(5))], Status.INVALID_TENSOR_DIM),
        (
            [Host(bytes(4), TensorDesc(DType.INT64, (4,)))],
            [Host(bytes(4))],
            Status.INVALID_TENSOR_SIZE,
        ),
    ],
    ids=["count", "output shape", "size"],
)
def test_tensors_that_do_not_fit_are_refused(
    inputs: list[Host], outputs: list[Host], status: Status
) -> None:
    with pytest.raises(NativeStatusError) as caught:
        _run(_leaf(), inputs, outputs)
    assert caught.value.status == status


def test_execute_needs_a_setup_for_the_same_shapes() -> None:
    leaf = _leaf()
    with NativeContext() as context:
        with pytest.raises(NativeStatusError, match="never set up"):
            leaf.execute(context, [Host(b"x").tensor], [Host(b"x").tensor])
        leaf.setup(context, [Host(b"x").tensor], [Host(b"x").tensor])
        with pytest.raises(NativeStatusError, match="other shapes"):
            leaf.execute(context, [Host(b"xy").tensor], [Host(b"xy").tensor])


def test_graph_refuses_unknown_tensors_and_second_owners() -> None:
    graph, leaf = NativeGraph("Graph", 1, 1, 0), _leaf()
    with pytest.raises(NativeStatusError, match="number 2"):
        graph.add_node(leaf, (2,), (1,))
    with pytest.raises(NativeStatusError, match="1 inputs and 1 outputs, not 2 and 1"):
        graph.add_node(leaf, (0, 0), (1,))
    graph.add_node(leaf, (0,), (1,))
    with pytest.raises(OperationError, match="already"):
        NativeGraph("Other", 1, 1, 0).add_node(leaf, (0,), (1,))
    with NativeContext() as context, pytest.raises(NativeStatusError, match="node of a graph"):
        leaf.setup(context, [Host(b"x").tensor], [Host(b"x").tensor])


def test_graph_refuses_tensors_that_nothing_writes() -> None:
    graph = NativeGraph("Graph", 1, 1, 1)
    with pytest.raises(NativeStatusError, match="reads tensor 2, which no earlier node writes"):
        graph.add_node(_leaf(), (2,), (1,))
    graph.add_node(_leaf(), (0,), (2,))
    with pytest.raises(NativeStatusError, match="no node of Graph writes output 0") as caught:
        _run(graph, [Host(b"x")], [Host(b"x")])
    assert caught.value.status == Status.INVALID_GRAPH


def test_graph_name_is_letters_digits_and_underscores() -> None:
    with pytest.raises(NativeStatusError, match=r"\.\./x"):
        NativeGraph("../x", 1, 1, 0)


def test_current_device_is_that_of_the_threads_context() -> None:
    device = ctypes.c_int32(7)
    seen: list[tuple[int, int]] = []

    def ask() -> None:
        seen.append((library().aclrtGetDevice(ctypes.byref(device)), device.value))

    with NativeContext(3):
        ask()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert seen == [(0, 3), (107002, -1)]


def test_packaged_directory_serves_as_home(monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_directory(0)
    assert home.name == "cxx_abi_0"
    monkeypatch.setenv("ATB_HOME_PATH", str(home))
    assert find_library(1) == home / "lib" / "libatb.so"


def test_library_of_unknown_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTATB_CXX_ABI", "2")
    with pytest.raises(ProbeError, match="HOSTATB_CXX_ABI is '2'"):
        find_library()
