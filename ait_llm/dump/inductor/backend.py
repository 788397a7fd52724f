"""Compiling a graph with Inductor, watched."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch.fx import Graph, GraphModule

from ait_llm.core.notices import notice
from ait_llm.dump.fx.graph_file import describe_graph
from ait_llm.dump.fx.graph_json import FILE, write_graph
from ait_llm.dump.fx.session import FxSession
from ait_llm.dump.inductor.decompositions import DecompositionTrace
from ait_llm.dump.inductor.instrument import watched_codegen
from ait_llm.dump.inductor.kernels import KernelTable, Stored, kernel_table
from ait_llm.dump.inductor.recorder import GraphRecorder, lost_graph
from ait_llm.dump.inductor.values import EagerGraph, ValueMap, map_values
from ait_llm.dump.inductor.wrapper import Wrapper
from ait_llm.dumps.fx_kernels import KERNELS_FILE, KERNELS_SCHEMA
from ait_llm.errors import UsageError

# What would hide the kernels, or hand out a program that was generated without us. None of it
# changes what a kernel computes.
_PATCHES: Mapping[str, Any] = {
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "cpp_wrapper": False,
    "triton.cudagraphs": False,
}


def check_torch() -> None:
    """Make sure that this torch has the places where we watch.

    Raises:
        UsageError: it has not.
    """
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    missing = [
        name
        for owner, name in (
            (config, "joint_custom_pre_pass"),
            (GraphLowering, "codegen"),
            (GraphModule, "_register_replace_node_hook"),
        )
        if not hasattr(owner, name)
    ]
    if missing:
        raise UsageError(
            f"Inductor of torch {torch.__version__} cannot be watched (no {missing[0]}); "
            "the capture is made for torch 2.13"
        )


def compile_watched(
    module: GraphModule,
    example_inputs: Sequence[Any],
    session: FxSession,
    config_patches: Mapping[str, Any],
) -> Callable[..., Any]:
    """What Inductor makes of a graph, with a recorder in it.

    Args:
        module: the graph of torch.compile.
        example_inputs: as backends get them.
        session: where the files go.
        config_patches: settings of Inductor.
    """
    from torch._functorch import config as functorch_config
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    watch = _Watch(session)
    watch.trace_eager(module, example_inputs)
    patches = {**config_patches, **_PATCHES}
    with config.patch(patches):
        theirs: Any = config.joint_custom_pre_pass

    def pre_pass(graph: Graph) -> None:
        watch.traced(graph)
        for each in theirs if isinstance(theirs, (list, tuple)) else [theirs]:
            if each is not None:
                each(graph)

    def inner(graph: GraphModule, inputs: Sequence[Any], **settings: Any) -> Any:
        try:
            number, folder = session.claim_graph()
        except OSError as error:  # the program must run as without us
            path, reason = str(error.filename or session.folder), error.strerror or str(error)
            notice(f"{path} of a compiled graph cannot be written: {reason}")
            session.not_written(path, reason)
            return compile_fx_inner(graph, inputs, **settings)
        if settings.get("is_backward"):
            return compile_fx_inner(graph, inputs, **settings)
        watch.follow(graph)
        with watched_codegen(
            lambda lowered, text: watch.table(lowered, text, number, folder),
            lambda error: watch.lost(folder, error),
        ):
            return compile_fx_inner(graph, inputs, **settings)

    # The cache of AOT graphs would hand out programs of earlier compilations.
    cache = {"enable_autograd_cache": False}
    known = hasattr(functorch_config, "enable_autograd_cache")
    with functorch_config.patch(cache) if known else nullcontext():
        compiled: Any = compile_fx(
            module,
            example_inputs,
            inner_compile=inner,
            config_patches={**patches, "joint_custom_pre_pass": pre_pass},
            decompositions=watch.decompositions.watched(select_decomp_table()),
        )
    whole: Callable[..., Any] = compiled
    return whole


def _eager_graph(module: GraphModule, example_inputs: Sequence[Any]) -> EagerGraph:
    """The AOT graph with no operator taken apart, as ``fx_backend`` traces it."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    found: list[GraphModule] = []

    def keep(graph: GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append(graph)
        return graph.forward

    context = TracingContext.try_get()
    # A copy: what one trace notes must not be there for the other one.
    scope: Any = tracing(copy.copy(context)) if context is not None else nullcontext()
    whole = aot_autograd(
        fw_compiler=keep,
        bw_compiler=lambda graph, _inputs: graph.forward,
        inference_compiler=keep,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    with scope:
        whole(module, example_inputs)
    return EagerGraph(found[0] if found else GraphModule({}, Graph()))


class _Watch:
    """One compilation."""

    def __init__(self, session: FxSession) -> None:
        self.decompositions = DecompositionTrace()
        self._session = session
        self._eager = EagerGraph(GraphModule({}, Graph()))
        self._values = ValueMap(self._eager)
        self._followed: list[GraphModule] = []

    def trace_eager(self, module: GraphModule, example_inputs: Sequence[Any]) -> None:
        """Trace the graph that kernels are held against."""
        from torch._dynamo.exc import TorchDynamoException

        try:
            self._eager = _eager_graph(module, example_inputs)
        except TorchDynamoException:
            raise  # not an error of ours: it tells Dynamo to analyse the program again
        except Exception as error:  # noqa: BLE001  Inductor may well compile it
            self.give_up("kernels cannot be matched with nodes", error)

    def lost(self, folder: Path, error: Exception) -> None:
        """Say that nothing of a graph is captured, and why."""
        reason = f"its program cannot be watched: {_words(error)}"
        notice(f"{folder.name} is not captured, {reason}")
        self._session.record(lost_graph(folder, 0, reason))

    def give_up(self, what: str, error: Exception) -> None:
        """Say what is not captured, and why."""
        text = f"{what}: {_words(error)}"
        notice(text)
        self._session.note(text)

    def traced(self, graph: Graph) -> None:
        """The decomposed graph is there, and no pass has changed it."""
        try:
            self._values = map_values(self._eager, graph, self.decompositions.found)
        except Exception as error:  # noqa: BLE001  the program must compile as without us
            self.give_up("kernels cannot be matched with nodes", error)
        if graph.owning_module is not None:
            self.follow(graph.owning_module)

    def follow(self, module: GraphModule) -> None:
        """Passes are about to change a module."""
        if not any(each is module for each in self._followed):
            self._followed.append(module)
            self._values.follow(module)

    def table(
        self, lowered: Any, wrapper: Wrapper, number: int, folder: Path
    ) -> tuple[GraphRecorder, KernelTable]:
        """The program was generated: write down what its kernels are."""
        table = kernel_table(lowered, wrapper, self._values)
        graph = describe_graph(self._eager.module, graph=number)
        for name, what in ((FILE, graph), (KERNELS_FILE, _as_json(table, number))):
            try:
                write_graph(folder / name, what)
            except OSError as error:
                path, reason = str(folder / name), error.strerror or str(error)
                notice(f"{path} of a compiled graph cannot be written: {reason}")
                self._session.not_written(path, reason)
        for each in table.unseen:
            self._session.note(f"graph {number}: no statement was found that writes {each}")
        return GraphRecorder(self._session, folder, table), table


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _as_json(table: KernelTable, number: int) -> dict[str, Any]:
    return {
        "schema": KERNELS_SCHEMA,
        "graph": number,
        "compiler": f"inductor of torch {torch.__version__}",
        "launches": [
            {
                "name": each.name,
                "kernel": each.kernel,
                "type": each.type,
                "source": each.source,
                "fused": each.fused,
                "inputs": [_stored(one) for one in each.inputs],
                "outputs": [_stored(one) for one in each.outputs],
            }
            for each in table.launches
        ],
        "unseen": table.unseen,
    }


def _stored(each: Stored) -> dict[str, Any]:
    return {
        "buffer": each.buffer,
        "node": each.node,
        "dtype": each.dtype,
        "value": asdict(each.value) if each.value is not None else None,
        "covers": each.covers,
    }
