"""Modules that run other operators than golden's, where all others run the same.

Half precision inside of one projection, or a function that is left out, may stay within every
tolerance; the operators that a capture lists show it. Two implementations list other operators in
all of their modules, and versions of one do; so only a module that alone differs says something:
alone of its class, or, as the whole model that has no other of its class, of all modules. The
latter computes the same by other operators, perhaps, unless it only has more, or fewer, of them.
What follows from values, such as which experts are run, is left out.

A run in half precision converts where golden in float32 need not. So a module that forgets to is
told by the others of its class in the same run, which are given and return the same types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ait_llm.compare.origin_run import operation_key
from ait_llm.dumps.model import Operation
from ait_llm.program.describe import dtype_of
from ait_llm.program.flow import parents_of
from ait_llm.program.one_pass import Pass
from ait_llm.program.operators import is_moving, is_uninitialised, kind_of
from ait_llm.program.roles import is_operator

# What is run after them depends on values.
_BRANCHING = frozenset({"_local_scalar_dense", "nonzero", "unique", "_unique2", "bincount"})
_CONVERSION = "_to_copy"
_TOLD = 3
# Relative error of one rounding, by type.
_UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True, slots=True)
class OtherOperators:
    """A module whose own code runs other operators.

    Attributes:
        op: index of the module.
        more, less: what only mine runs, and only golden's: ``tanh``, ``_to_copy to bfloat16``.
        peers: other modules of its class, which run what golden's do; none where all other
            modules of the program do.
        of_peers: it runs less than they do, where golden's all run the same.
    """

    op: int
    more: tuple[str, ...]
    less: tuple[str, ...]
    peers: int
    of_peers: bool = False


def other_operators(
    golden: Pass, mine: Pass, counterparts: Mapping[int, Operation]
) -> Iterator[OtherOperators]:
    """Modules that alone of their class, or of the program, run other operators than golden's.

    Args:
        golden, mine: the passes.
        counterparts: golden operations by index of mine.
    """
    halves = _working_half(golden), _working_half(mine)
    theirs, ours = _run_by(golden, halves), _run_by(mine, halves)
    places = {operation_key(operation): op for op, operation in enumerate(golden.operations)}
    differing: dict[str, list[OtherOperators]] = {}
    known: dict[str, dict[int, tuple[Counter[str], Counter[str]]]] = {}
    peers: dict[str, int] = {}
    for op, run in ours.items():
        module, other = mine.operations[op], counterparts.get(op)
        if other is None or other.type != module.type or other.name != module.name:
            continue
        found = theirs.get(places.get(operation_key(other), -1))
        if found is None:
            continue
        if _BRANCHING & (run.keys() | found.keys()):
            continue
        known.setdefault(module.type, {})[op] = run, found
        if run == found:
            peers[module.type] = peers.get(module.type, 0) + 1
        elif _types(module) == _types(other) or _coarsens(module, run - found):
            more, less = (tuple(sorted(each)) for each in (run - found, found - run))
            differing.setdefault(module.type, []).append(OtherOperators(op, more, less, 0))
    for kind, found_ones in differing.items():
        one, count = found_ones[0], peers.get(kind, 0)
        if len(found_ones) == 1 and (count or (len(differing) == 1 and peers and _lacks(one))):
            yield replace(one, peers=count)
    for modules in known.values():
        yield from _forgetful(mine, modules)


def _forgetful(
    mine: Pass, modules: Mapping[int, tuple[Counter[str], Counter[str]]]
) -> Iterator[OtherOperators]:
    """Modules that alone of their kind do not convert to the finer type that the others work in.

    Args:
        mine: the pass.
        modules: what each of the class runs, and golden's.
    """
    alike: dict[object, list[int]] = {}
    for op in modules:
        alike.setdefault(_kinds(mine.operations[op]), []).append(op)
    for ops in alike.values():
        op, *others = sorted(ops, key=lambda each: modules[each][0].total())
        (run, golden), peers = modules[op], [modules[each] for each in others]
        if not peers or any(each != (peers[0][0], golden) for each in peers):
            continue
        less = _forgotten(mine.operations[op], run, peers[0][0])
        if less:
            yield OtherOperators(op, (), less, len(peers), of_peers=True)


def _forgotten(module: Operation, run: Counter[str], peer: Counter[str]) -> tuple[str, ...]:
    """Conversions to a finer type than it returns that a module leaves out, if only those."""
    less, made = peer - run, _made(module)
    limit = max((_UNITS.get(kind, 0.0) for kind in made), default=0.0)
    there = {f"{_CONVERSION} to {label}" for label, unit in _UNITS.items() if unit < limit}
    back = {f"{_CONVERSION} to {kind}" for kind in made}
    if run - peer or not less.keys() <= there | back:
        return ()
    return tuple(sorted(less.keys() & there))


def _lacks(found: OtherOperators) -> bool:
    """True if one side only leaves out what the other computes, or computes in addition."""
    names = found.more or found.less
    return not (found.more and found.less) and not any(_CONVERSION in each for each in names)


def by_other_operators(name: str, found: OtherOperators) -> str:
    """The sentence that says what a module runs otherwise."""
    if found.of_peers:
        others = f"those of the {found.peers} other modules of its class that are given its types"
        if found.peers == 1:
            others = "that of the other module of its class that is given its types"
        return (
            f"the code of `{name}` runs less of {_listed(found.less)} than {others}, and golden's "
            "all run the same"
        )
    parts = []
    if found.more:
        parts.append(f"runs more of {_listed(found.more)} than golden's")
    if found.less:
        parts.append(f"runs less of {_listed(found.less)} than golden's")
    others = f"{found.peers} other modules of its class run"
    if not found.peers:
        others = "all that it computes with is golden's to the bit, and all other modules run"
    elif found.peers == 1:
        others = "the other module of its class runs"
    return f"the code of `{name}` {' and '.join(parts)}; {others} what golden's do"


def _listed(names: tuple[str, ...]) -> str:
    told = ", ".join(f"`aten.{each}`" for each in names[:_TOLD])
    return told if len(names) <= _TOLD else f"{told} and {len(names) - _TOLD} more"


def _working_half(run: Pass) -> str:
    """The half precision that a program is in: type of most results; empty for float32."""
    made = Counter(
        kind
        for operation in run.operations
        if is_operator(operation)
        for kind in _made(operation)
        if kind in _UNITS
    )
    most = made.most_common(1)[0][0] if made else ""
    return "" if most == "float32" else most


def _run_by(run: Pass, halves: tuple[str, str]) -> dict[int, Counter[str]]:
    """What the own code of each module runs that computes, and how often, by index.

    Where the two programs are in other types, a conversion to golden's is one to mine, and a
    conversion to the half precision that one alone is in has no counterpart.
    """
    golden, mine = (f"{_CONVERSION} to {each}" if each else "" for each in halves)
    other_types = golden != mine
    found: dict[int, Counter[str]] = {}
    operations = run.operations
    for op, parent in enumerate(parents_of(run)):
        operation = operations[op]
        if parent is None or not is_operator(operation) or is_operator(operations[parent]):
            continue
        known = found.setdefault(parent, Counter())
        if not is_moving(operation) and not is_uninitialised(operation):
            name = _named(operation)
            if other_types and name in (golden, mine):
                name = mine if golden else ""
            if name:
                known[name] += 1
    return found


def _named(operation: Operation) -> str:
    kind = kind_of(operation)
    if kind != _CONVERSION or not operation.outputs:
        return kind
    made = _made(operation)
    return f"{kind} to {made[0]}" if made else kind


def _coarsens(module: Operation, more: Mapping[str, int]) -> bool:
    """True if a module converts to a type that is coarser than what it returns.

    Runs of another type than golden's convert at other places, but none of them to less than that.
    """
    limit = max((_UNITS.get(kind, 0.0) for kind in _made(module)), default=0.0)
    return bool(limit) and any(
        unit > limit for label, unit in _UNITS.items() if f"{_CONVERSION} to {label}" in more
    )


def _made(operation: Operation) -> list[str]:
    """Types of what an operation returns, as PyTorch calls them."""
    kinds = (dtype_of(each) for each in operation.outputs)
    return [kind.torch_name or kind.label for kind in kinds if kind is not None]


def _kinds(module: Operation) -> tuple[object, ...]:
    """Types of all that a module is given, has and returns."""
    return _types(module), *map(dtype_of, module.parameters.values())


def _types(module: Operation) -> tuple[object, ...]:
    return tuple(dtype_of(each) for each in (*module.inputs, *module.outputs))
