"""Taps around the operators of a graph, put there while AOTAutograd traces it.

A graph of Dynamo has functions of torch; which operators these are is decided below autograd,
where an eager capture sees them too. AOTAutograd runs the graph there, node by node, before
anything is decomposed or fused. So every operator that a node runs gets a tap before it, with what
it reads, and one behind it: names are those of an eager run. Which module it belongs to is told
when it runs, by the taps of modules around it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.dump.inject.site.ait_torch_capture import when_imported
from ait_llm.dump.pytorch.values import leaves

_RUNS_GRAPHS = "torch.fx.experimental.symbolic_shapes", "PropagateUnbackedSymInts"
"""Module and class of what AOTAutograd runs a graph of Dynamo with."""

_COMPILES_GRAPHS = "torch._dynamo.output_graph", "OutputGraph"
"""Module and class of what hands a graph of Dynamo to its compiler."""

_SUFFIX = "-operators"
"""Of numbers of captures that want operators: a graph kept in a cache tells whether it has them."""


def number_for(number: str, *, operators: bool) -> str:
    """The number by which taps call a capture, of operators or of modules alone."""
    return f"{number}{_SUFFIX}" if operators else number


def prepare(tap: Any, enter: str, leave: str) -> None:
    """Have graphs with taps of captures that want operators get taps around these.

    Args:
        tap: the overload ``ait_llm::tap``.
        enter, leave: the events before and behind an operator.
    """
    changes = (
        (_RUNS_GRAPHS[0], functools.partial(_follow, tap, enter, leave)),
        (_COMPILES_GRAPHS[0], _know_compiled_code),
    )
    for name, change in changes:
        if name in sys.modules:
            change()
        else:
            when_imported(name, change)


def is_inside_graph() -> bool:
    """True while code that Dynamo had compiled runs on this thread, whose taps report it."""
    return _depth.value > 0


def will_be_compiled(frame: FrameType | None) -> bool:
    """True if what this frame of Python runs is called through ``torch.compile``."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch._dynamo.eval_frame":
            return frame.f_code.co_name != "_fn"  # torch._dynamo.disable
        frame = frame.f_back
    return False


class _Depth(threading.local):
    """How many calls of compiled code are running on a thread, one in the other."""

    value = 0


_depth = _Depth()


def _know_compiled_code() -> None:
    name, kind = _COMPILES_GRAPHS
    graph: Any = getattr(sys.modules[name], kind, None)
    if graph is None or hasattr(graph, "ait_taps") or not hasattr(graph, "call_user_compiler"):
        return
    call_user_compiler = graph.call_user_compiler

    @functools.wraps(call_user_compiler)
    def call_user_compiler_and_know(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = call_user_compiler(self, *args, **kwargs)
        has_taps = _first_tap(args[0], torch.ops.ait_llm.tap.default) if args else None
        return compiled if has_taps is None else _known(compiled)

    graph.call_user_compiler = call_user_compiler_and_know
    graph.ait_taps = True


def _known(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled code that says that it runs."""

    @functools.wraps(compiled)
    def run(*args: Any, **kwargs: Any) -> Any:
        _depth.value += 1
        try:
            return compiled(*args, **kwargs)
        finally:
            _depth.value -= 1

    return run


def _follow(tap: Any, enter: str, leave: str) -> None:
    name, kind = _RUNS_GRAPHS
    interpreter: Any = getattr(sys.modules[name], kind, None)
    if interpreter is None or hasattr(interpreter, "ait_taps"):
        return
    run_node = interpreter.run_node

    @functools.wraps(run_node)
    def run_node_with_taps(self: Any, node: Any) -> Any:
        with _around(self, node, tap, enter, leave):
            return run_node(self, node)

    interpreter.run_node = run_node_with_taps
    interpreter.ait_taps = True


def _around(
    interpreter: Any, node: Any, tap: Any, enter: str, leave: str
) -> contextlib.AbstractContextManager[object]:
    """What puts taps around the operators of a node; nothing where none are wanted."""
    known = vars(interpreter)
    if "ait_first" not in known:
        known["ait_first"] = _first_tap(interpreter.module, tap)
    first = known["ait_first"]
    if first is None or node.op not in ("call_function", "call_method", "call_module"):
        return contextlib.nullcontext()
    clock = first.args[1]
    if clock in interpreter.env:  # an interpreter forgets what nothing reads any more
        known["ait_clock"] = interpreter.env[clock]
    if "ait_clock" not in known or _is_own(node, tap) or _has_body(node):
        return contextlib.nullcontext()
    return _Taps(tap, known["ait_clock"], first.args[2], enter, leave)


def _first_tap(graph: Any, tap: Any) -> Any:
    """The first tap of a capture that wants operators; None if there is none."""
    for node in getattr(getattr(graph, "graph", None), "nodes", ()):
        if node.target is tap and str(node.args[2]).endswith(_SUFFIX):
            return node
    return None


def _is_own(node: Any, tap: Any) -> bool:
    """True for a tap, and for what a value goes through for taps alone."""
    return node.target is tap or (
        bool(node.users) and all(user.target is tap for user in node.users)
    )


def _has_body(node: Any) -> bool:
    """True for what runs graphs of its own: a loop, a branch, a checkpoint."""
    return isinstance(node.target, HigherOrderOperator)


class _Taps(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """Sees each operator below autograd, and leaves taps around it in what is traced."""

    def __init__(self, tap: Any, clock: Tensor, number: str, enter: str, leave: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
        self._tap = tap
        self._clock = clock
        self._number = number
        self._events = enter, leave

    def __torch_dispatch__(
        self,
        func: Any,  # torch._ops.OpOverload, not public
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "namespace", "") in ("prim", "ait_llm"):
            return func(*args, **kwargs)
        parts = [(f"input_{index}", value) for index, value in enumerate(args)]
        parts += [(f"input_{name}", value) for name, value in kwargs.items()]
        self._insert(self._events[0], str(func), parts)
        output = func(*args, **kwargs)
        self._insert(self._events[1], str(func), [("output", output)])
        return output

    def _insert(self, event: str, name: str, parts: list[tuple[str, Any]]) -> None:
        found = [leaf for part, value in parts for leaf in leaves(value, part)]
        tensors = [leaf for leaf in found if leaf.tensor is not None]
        texts = [f"{leaf.name}={leaf.value!r}" for leaf in found if _is_constant(leaf)]
        self._tap(
            [leaf.tensor for leaf in tensors],
            self._clock,
            self._number,
            event,
            name,
            [leaf.name for leaf in tensors],
            texts,
        )


def _is_constant(leaf: Any) -> bool:
    return leaf.tensor is None and not leaf.reason
