"""Typed binding of the graph runtime in the embedded ``libatb.so``.

The runtime owns ids, counters, directories, in-graph memory and the order of all Probe calls. What
an operator computes is a Python object, the :class:`LeafImplementation`. Tensors are passed as
descriptions with host addresses, so this module knows nothing of torch.

Example:
    >>> with NativeContext() as context:                                    # doctest: +SKIP
    ...     leaf = NativeLeaf("ElewiseOperation", add, 2, 1, param_json='{"elewiseType":8}')
    ...     leaf.setup(context, inputs, outputs)
    ...     leaf.execute(context, inputs, outputs)
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from ait_llm.core import TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb import marshal
from ait_llm.hostatb.capi import (
    Accept,
    Callbacks,
    Desc,
    InferShape,
    PlanKernels,
    ReshapeInput,
    Run,
    library,
)
from ait_llm.hostatb.native_types import (
    EMPTY_TENSOR,
    LeafImplementation,
    NativeStatusError,
    NativeTensor,
    Reshape,
    Status,
)

__all__ = [
    "EMPTY_TENSOR",
    "LeafImplementation",
    "NativeContext",
    "NativeGraph",
    "NativeLeaf",
    "NativeOperation",
    "NativeStatusError",
    "NativeTensor",
    "Reshape",
    "Status",
    "library",
    "raise_float_status",
    "report_model",
]


class NativeContext:
    """An ATB context: the device that operations run on. Asks ``IsOverflowCheck`` as ATB does.

    Args:
        device: logical device id; names the dump directory.

    Raises:
        NativeStatusError: a probe function failed.
    """

    def __init__(self, device: int = 0) -> None:
        self._handle: int | None = marshal.created(
            "creating a context", library().hostatb_context_create(device)
        )

    @property
    def handle(self) -> int:
        """The C handle.

        Raises:
            OperationError: the context is closed.
        """
        if self._handle is None:
            raise OperationError("the context is closed; create a new NativeContext")
        return self._handle

    def set_stream(self) -> None:
        """Bind a stream, as ``SetExecuteStream`` does.

        Raises:
            NativeStatusError: a probe function failed.
        """
        marshal.check("setting the stream", library().hostatb_context_set_stream(self.handle))

    def set_graph_launch(self, enabled: bool) -> None:
        """Choose between launching kernels one by one and capturing them at the first Execute.

        A captured operation is replayed by later Executes: only the tilings reach the probe then.
        """
        status = library().hostatb_context_set_launch_mode(self.handle, int(enabled))
        marshal.check("choosing the launch mode", status)

    def close(self) -> None:
        """Release the context; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            library().hostatb_context_destroy(handle)

    def __enter__(self) -> NativeContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class NativeOperation:
    """An operation of the runtime; use :class:`NativeLeaf` or :class:`NativeGraph`.

    One operation is used by one thread at a time. An operation added to a graph belongs to that
    graph. Handles are released by :meth:`close`, or when the object is collected.

    Attributes:
        type_name: operation type as the Probe sees it; a graph's own name.
        input_count, output_count: numbers of tensors.
    """

    def __init__(self, type_name: str, handle: int, input_count: int, output_count: int) -> None:
        self.type_name = type_name
        self.input_count = input_count
        self.output_count = output_count
        self._handle: int | None = handle
        self._owner: NativeOperation | None = None

    @property
    def handle(self) -> int:
        """The C handle.

        Raises:
            OperationError: the operation is closed.
        """
        if self._handle is None:
            raise OperationError(f"{self.type_name} is closed; create the operation again")
        return self._handle

    def infer_shape(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Describe the outputs for these inputs.

        Raises:
            NativeStatusError: the inputs do not fit; the cause is what the leaf raised.
        """
        given = (Desc * len(inputs))()
        for target, desc in zip(given, inputs, strict=True):
            marshal.fill_desc(target, desc)
        found = (Desc * self.output_count)()
        status = library().hostatb_infer_shape(
            self.handle, len(given), given, self.output_count, found
        )
        marshal.check(f"InferShape of {self.type_name}", status)
        return marshal.descs_of(self.output_count, found)

    def setup(
        self,
        context: NativeContext,
        inputs: Sequence[NativeTensor],
        outputs: Sequence[NativeTensor],
    ) -> None:
        """Prepare one execution. The first Setup gives a top-level operation its id.

        Raises:
            NativeStatusError: tensors do not fit, or a probe function or a leaf failed.
        """
        self._call("Setup", library().hostatb_setup, context, inputs, outputs)

    def execute(
        self,
        context: NativeContext,
        inputs: Sequence[NativeTensor],
        outputs: Sequence[NativeTensor],
    ) -> None:
        """Run the operation; tensors are described as at the last Setup, data may have moved.

        Raises:
            NativeStatusError: a kernel or a probe function failed, or an overflow stopped it.
        """
        self._call("Execute", library().hostatb_execute, context, inputs, outputs)

    def _call(
        self,
        call: str,
        function: Callable[..., int],
        context: NativeContext,
        inputs: Sequence[NativeTensor],
        outputs: Sequence[NativeTensor],
    ) -> None:
        status = function(
            self.handle,
            context.handle,
            len(inputs),
            marshal.tensor_array(inputs),
            len(outputs),
            marshal.tensor_array(outputs),
        )
        marshal.check(f"{call} of {self.type_name}", status)

    def close(self) -> None:
        """Destroy the operation; does nothing for one that belongs to a graph."""
        handle, self._handle = self._handle, None
        if handle is not None and self._owner is None:
            library().hostatb_operation_destroy(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self.close()


class NativeLeaf(NativeOperation):
    """An operator that computes something.

    Args:
        type_name: operation type, such as ``LinearOperation``; a plugin's own name.
        implementation: what it does; kept alive with this object.
        input_count, output_count: numbers of tensors, optional ones included.
        param_json: compact parameter JSON with sorted keys; None for a type that prints none.
        input_names, output_names: tensor names of the operation IR, which become part of file
            names; None for types without IR.
        plugin: a user operation, which the graph JSON calls ``PluginOperation``.

    Raises:
        NativeStatusError: a name or count is not acceptable.
    """

    def __init__(
        self,
        type_name: str,
        implementation: LeafImplementation,
        input_count: int,
        output_count: int,
        *,
        param_json: str | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        plugin: bool = False,
    ) -> None:
        for names, count in ((input_names, input_count), (output_names, output_count)):
            if names is not None and len(names) != count:
                raise OperationError(f"{type_name}: {len(names)} tensor names for {count} tensors")
        self._implementation = implementation
        self._callbacks = Callbacks(  # C keeps these pointers: they live as long as this object
            None,
            InferShape(self._on_infer_shape),
            PlanKernels(self._on_plan),
            Run(self._on_run),
            Accept(self._on_accept) if hasattr(implementation, "accept") else Accept(),
        )
        handle = library().hostatb_leaf_create(
            type_name.encode(),
            None if param_json is None else param_json.encode(),
            input_count,
            marshal.name_array(input_names),
            output_count,
            marshal.name_array(output_names),
            int(plugin),
            ctypes.byref(self._callbacks),
        )
        super().__init__(
            type_name, marshal.created(f"creating {type_name}", handle), input_count, output_count
        )

    def _on_infer_shape(self, _: Any, in_num: int, ins: Any, out_num: int, outs: Any) -> int:
        status = [int(Status.NO_ERROR)]
        with marshal.failing_status(status):
            found = self._implementation.infer_shape(marshal.descs_of(in_num, ins))
            if len(found) != out_num:
                raise OperationError(
                    f"{self.type_name} described {len(found)} outputs, it has {out_num}"
                )
            for index, desc in enumerate(found):
                marshal.fill_desc(outs[index], desc)
        return status[0]

    def _on_plan(
        self, _: Any, plan_handle: int, in_num: int, ins: Any, out_num: int, outs: Any
    ) -> int:
        status = [int(Status.NO_ERROR)]
        with marshal.failing_status(status):
            lib = library()
            plan = self._implementation.plan(
                marshal.descs_of(in_num, ins), marshal.descs_of(out_num, outs)
            )
            for desc in plan.workspace:
                workspace = Desc()
                marshal.fill_desc(workspace, desc)
                lib.hostatb_plan_add_workspace(plan_handle, ctypes.byref(workspace))
            for kernel in plan.kernels:
                code = lib.hostatb_plan_add_kernel(
                    plan_handle,
                    kernel.name.encode(),
                    kernel.mki_op.encode(),
                    kernel.mki_param.encode(),
                    kernel.tiling_size,
                    len(kernel.inputs),
                    marshal.id_array(kernel.inputs),
                    len(kernel.outputs),
                    marshal.id_array(kernel.outputs),
                )
                if code != Status.NO_ERROR:
                    raise NativeStatusError(f"planning {kernel.name}", code, marshal.last_error())
        return status[0]

    def _on_accept(self, _: Any, in_num: int, ins: Any, out_num: int, outs: Any) -> int:
        status = [int(Status.NO_ERROR)]
        with marshal.failing_status(status):
            accept = self._implementation.accept  # type: ignore[attr-defined]  # a Gate
            accept(marshal.descs_of(in_num, ins), marshal.descs_of(out_num, outs))
        return status[0]

    def _on_run(self, _: Any, kernel: int, in_num: int, ins: Any, out_num: int, outs: Any) -> int:
        status = [int(Status.NO_ERROR)]
        with marshal.failing_status(status):
            self._implementation.run(
                kernel, marshal.tensors_of(in_num, ins), marshal.tensors_of(out_num, outs)
            )
        return status[0]


class NativeGraph(NativeOperation):
    """A graph of operations.

    Args:
        name: letters, digits and ``_``, at most 128; empty for an unnamed graph, which reports
            itself as ``GraphOperation``.
        input_count, output_count, internal_count: numbers of tensors. Tensor ids inside the graph
            count inputs, then outputs, then internals.

    Raises:
        NativeStatusError: the name is not acceptable.
    """

    def __init__(self, name: str, input_count: int, output_count: int, internal_count: int) -> None:
        handle = library().hostatb_graph_create(
            name.encode(), input_count, output_count, internal_count
        )
        handle = marshal.created(f"creating graph {name!r}", handle)
        super().__init__(name or "GraphOperation", handle, input_count, output_count)
        self._kept: list[object] = []  # nodes and reshape callbacks that C refers to

    def add_node(
        self,
        operation: NativeOperation,
        inputs: Sequence[int],
        outputs: Sequence[int],
        reshape: Reshape | None = None,
    ) -> None:
        """Append a node; the graph takes the operation over.

        Args:
            operation: a leaf or a graph that is in no other graph.
            inputs, outputs: tensor ids of this graph, one per tensor of the operation.
            reshape: gives inputs of the node another shape over the same data.

        Raises:
            OperationError: the operation belongs to a graph already.
            NativeStatusError: an id is out of range, or counts do not match.
        """
        if operation._owner is not None:
            raise OperationError(f"{operation.type_name} is a node of a graph already")
        callback = (
            ReshapeInput(marshal.reshape_callback(reshape))
            if reshape is not None
            else ReshapeInput()
        )
        status = library().hostatb_graph_add_node(
            self.handle,
            operation.handle,
            len(inputs),
            marshal.id_array(inputs),
            len(outputs),
            marshal.id_array(outputs),
            callback,
            None,
        )
        marshal.check(f"adding {operation.type_name} to {self.type_name}", status)
        operation._owner = self
        self._kept += [operation, callback]


def raise_float_status() -> None:
    """Say from inside :meth:`LeafImplementation.run` that an intermediate result overflowed."""
    library().hostatb_raise_float_status()


def report_model(name: str, topology_json: str) -> None:
    """Offer a model's topology to ``atb_speed::SpeedProbe``, as the model layer does per step.

    Raises:
        NativeStatusError: a probe function failed.
    """
    status = library().hostatb_report_model(name.encode(), topology_json.encode())
    marshal.check(f"reporting the topology of {name}", status)
