"""Taps in graphs that Inductor compiles: the rest of a graph stays what it is without them.

Inductor joins operations into kernels, in which values keep more digits than their type has. What
it joins depends on how many read a value, so one reader more could change the last bits of what a
program computes. Therefore a tap is no reader: where Inductor counts the readers of a value, taps
are left out, and a value that no memory holds is computed for the tap once more.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ait_llm.dump.inject.site.ait_torch_capture import when_imported


def prepare(tap: Any) -> None:
    """Have Inductor know the operator, now or when it is imported.

    Args:
        tap: the overload ``ait_llm::tap``.
    """
    for name, change in (
        ("torch._inductor.lowering", _lower),
        ("torch._inductor.graph", _hide_from_lowering),
        ("torch._inductor.pattern_matcher", _hide_from_patterns),
    ):
        if name in sys.modules:
            change(sys.modules[name], tap)
        else:
            when_imported(name, functools.partial(_when_there, name, change, tap))


def _when_there(name: str, change: Callable[[ModuleType, Any], None], tap: Any) -> None:
    change(sys.modules[name], tap)


def _lower(lowering: ModuleType, tap: Any) -> None:
    """Give a tap memory that holds its values, without asking for it where there is none."""
    if tap in lowering.lowerings:
        return
    fallback = lowering.fallback_handler(tap, add_to_fallback_set=False)

    def lowered(values: list[Any], *rest: Any) -> Any:
        return fallback([_held(each) for each in values], *rest)

    lowering.lowerings[tap] = lowered


def _held(value: Any) -> Any:
    """The value in memory: where it is, or a copy of what is only an expression so far."""
    from torch._inductor import ir

    inner = value
    while isinstance(inner, (ir.TensorBox, ir.StorageBox, ir.BaseView)):
        inner = inner.data
    if isinstance(inner, ir.Buffer):
        return value
    return ir.ExternKernel.copy_input(value)


def _hide_from_lowering(graph: ModuleType, tap: Any) -> None:
    """Have the decision what gets memory of its own not see taps."""
    run_node = graph.GraphLowering.run_node

    @functools.wraps(run_node)
    def run_node_without_taps(self: Any, node: Any) -> Any:
        with _without_taps(node, tap):
            return run_node(self, node)

    graph.GraphLowering.run_node = run_node_without_taps


def _hide_from_patterns(matcher: ModuleType, tap: Any) -> None:
    """Have patterns of operations be found whose inner values are tapped; these are kept, too."""
    expression = matcher._TargetExpr
    match_users = expression._match_users

    @functools.wraps(match_users)
    def match_users_without_taps(self: Any, node: Any, ctx: Any) -> bool:
        with _without_taps(node, tap):
            return bool(match_users(self, node, ctx))

    expression._match_users = match_users_without_taps


@contextlib.contextmanager
def _without_taps(node: Any, tap: Any) -> Iterator[None]:
    """While the readers of a node of a graph are looked at."""
    users = node.users
    others = {user: None for user in users if not _is_tap(user, tap)}
    if len(others) in (0, len(users)):
        yield
        return
    node.users = others
    try:
        yield
    finally:
        node.users = users


def _is_tap(node: Any, tap: Any) -> bool:
    """True for a tap, and for one that is made functional until the graph is lowered."""
    return node.target is tap or (
        getattr(node.target, "__name__", "").startswith("auto_functionalized")
        and node.args[:1] == (tap,)
    )
