"""The adapter of each kind of pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ait_llm.program.one_pass import Pass
from ait_llm.program.program import Program

# Each loads what its kind needs: a command opens dumps of one kind or two.


def _program_of_torch(run: Pass) -> Program:
    from ait_llm.program.adapt_operators import has_operators_alone, program_of_operators

    return program_of_operators(run) if has_operators_alone(run) else Program(run)


def _program_of_fx(run: Pass) -> Program:
    from ait_llm.program.adapt_kernels import is_compiled, program_of_kernels

    return program_of_kernels(run) if is_compiled(run) else _program_of_nodes(run)


def _program_of_nodes(run: Pass) -> Program:
    from ait_llm.program.adapt_fx import program_of_nodes

    return program_of_nodes(run)


def _program_of_graph(run: Pass) -> Program | None:
    from ait_llm.program.adapt_ge import program_of_graph

    return program_of_graph(run)


def _program_of_calls(run: Pass) -> Program:
    from ait_llm.program.adapt_api import program_of_calls

    return program_of_calls(run)


_ADAPTERS: Mapping[str, Callable[[Pass], Program | None]] = {
    "atb": Program,
    "torch": _program_of_torch,
    "fx": _program_of_fx,
    "ge": _program_of_graph,
    "api": _program_of_calls,
    "ptdbg": _program_of_calls,
}


def program_of(run: Pass) -> Program | None:
    """A pass as a program; None if its graph is not known.

    Operations of a kind from elsewhere are taken for single operators, as nodes of a graph are.
    """
    kept = _kept.get()
    if kept is None:
        return _built(run)
    if id(run) not in kept:
        kept[id(run)] = run, _built(run)
    return kept[id(run)][1]


def program_if_built(run: Pass) -> Program | None:
    """What :func:`program_of` answered within :func:`programs_kept`; None if it was not asked."""
    return (_kept.get() or {}).get(id(run), (run, None))[1]


def _built(run: Pass) -> Program | None:
    return _ADAPTERS.get(run.kind, _program_of_nodes)(run)


# By number of the pass, which is kept as well so that no other one gets its number.
_kept: ContextVar[dict[int, tuple[Pass, Program | None]] | None] = ContextVar("kept", default=None)


@contextmanager
def programs_kept() -> Iterator[None]:
    """Build the program of each pass once, whoever asks for it inside."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)
