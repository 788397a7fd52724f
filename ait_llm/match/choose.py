"""The matchers in order of trust, and what none of them had a word for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import groupby

from ait_llm.core import TensorRecord
from ait_llm.core.plugins import load_plugins
from ait_llm.match.checkpoint import with_checkpoints
from ait_llm.match.left_out import without_requests
from ait_llm.match.lineages import with_lineages
from ait_llm.match.model import (
    Match,
    Matcher,
    MatchOptions,
    SideName,
    Source,
    Unmatched,
    matchers,
)
from ait_llm.match.operators import Key, key_of, placed, remaining
from ait_llm.program.adapters import program_if_built, programs_kept
from ait_llm.program.one_pass import Pass
from ait_llm.program.program import Program

# Module of each matcher; they register themselves when imported.
_MODULES = {
    "by_file": "ait_llm.match.by_file",
    "by_weight": "ait_llm.match.by_weight",
    "saved_mapping": "ait_llm.match.saved_mapping",
    "op_mapping": "ait_llm.match.op_mapping",
    "programs": "ait_llm.match.programs",
    "by_value": "ait_llm.match.by_value",
}
# Matchers in other packages register themselves in modules that are entry points of this group.
PLUGINS = "ait_llm.matchers"


def load_matcher(name: str) -> Matcher:
    """A matcher by name.

    Raises:
        UnknownNameError: no such matcher.
    """
    module = _MODULES.get(name)
    if name not in matchers and module is not None:
        import_module(module)
    return matchers.get(name)


def matchers_for(golden: Pass, mine: Pass, options: MatchOptions) -> list[str]:
    """Names of the matchers that apply to two runs, the most trusted first.

    Those that others registered are asked about what is left, in alphabetical order.

    Raises:
        UsageError: a matcher of another package cannot be loaded.
    """
    load_plugins(PLUGINS)
    sides = golden.traits, mine.traits
    if all(side.holds == "weights" for side in sides):
        return ["by_weight"]
    if all(side.holds != "operations" for side in sides):
        return ["by_file"]
    names = []
    if options.mapping is not None:
        names.append("saved_mapping")
    if options.op_mapping and any(s.library for s in sides) and any(s.dotted for s in sides):
        names.append("op_mapping")
    names.append("programs")
    names += [name for name in matchers if name not in _MODULES]
    if options.by_value:
        names.append("by_value")
    return names


@contextmanager
def _no_collection() -> Iterator[None]:
    """Look for no cycles: of all that is made here, most is handed back, and none of it is one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_no_collection()
@programs_kept()
def match_runs(
    golden: Pass,
    mine: Pass,
    options: MatchOptions,
    *,
    on_program: Callable[[SideName, Program], None] | None = None,
) -> list[Match | Unmatched]:
    """Say for every tensor of two runs which one answers it, or why none does.

    What a more trusted matcher paired stays as it is. A tensor of mine may answer several golden
    ones: a module's output and the input of the next are the same values. The list is in my
    execution order, golden tensors without a partner last.

    Args:
        golden, mine: the runs.
        options: what the user decided.
        on_program: called with each of the two as a program, if a matcher looked at it as one.

    Raises:
        FormatError: a topology or ledger, or a checkpoint of the options, cannot be read.
        UsageError: a checkpoint has no weight of any module.
    """
    golden, mine = with_checkpoints(golden, mine, options.weights_from)
    found = _found(golden, mine, options)
    if on_program is not None:
        for side, run in _sides(golden, mine):
            program = program_if_built(run)
            if program is not None:
                on_program(side, program)
    return found


def _sides(golden: Pass, mine: Pass) -> tuple[tuple[SideName, Pass], ...]:
    return ("golden", golden), ("mine", mine)


def _found(golden: Pass, mine: Pass, options: MatchOptions) -> list[Match | Unmatched]:
    matches: list[Match] = []
    reasons: dict[SideName, dict[Key, Unmatched]] = {"golden": {}, "mine": {}}
    for name in matchers_for(golden, mine, options):
        earlier = {_key(match.mine) for match in matches}
        if earlier and _keys(mine) <= earlier:
            break  # every tensor of mine has its answer
        sides = golden, mine
        if name == "by_value":  # it knows nothing of places and must not see what is settled
            sides = remaining(golden, _golden_keys(matches)), remaining(mine, earlier)
        chosen = replace(options, settled=tuple(matches))
        for each in load_matcher(name)(*sides, chosen):
            if isinstance(each, Unmatched):
                reasons[each.side].setdefault(_key(each.source), each)
            elif not earlier or _key(each.mine) not in earlier:
                matches.append(each)
    matches = list(_told_once(matches))
    used = {(side, _key_of_record(record)) for match in matches for side, record in match.uses}
    answered = {_key(match.mine) for match in matches}
    answered |= {key for side, key in used if side == "mine"}
    ordered: list[Match | Unmatched] = [*matches, *_left("mine", mine, answered, reasons["mine"])]
    ordered.sort(key=_my_place)
    answered = _golden_keys(matches)
    answered |= {key for side, key in used if side == "golden"}
    ordered += _left("golden", golden, answered, reasons["golden"])
    if golden.traits.holds != "operations" or mine.traits.holds != "operations":
        return ordered
    found = with_lineages(ordered, golden, mine)
    return list(found if mine.left_out is None else without_requests(found, golden, mine))


def _told_once(matches: list[Match]) -> Iterator[Match]:
    """Matches by my execution order; what was said before of the same tensors is left out."""
    matches.sort(key=_my_order)
    for _, of_operation in groupby(matches, key=_my_order):
        known = set()
        for match in of_operation:
            said = match.mine.name, match.mine.views, _key(match.golden)
            if said not in known:
                known.add(said)
                yield match


def _my_order(match: Match) -> int:
    return match.mine.order


def _left(
    side: SideName,
    run: Pass,
    answered: set[Key],
    reasons: Mapping[Key, Unmatched],
) -> Iterator[Unmatched]:
    """Every tensor of a run that is in no match, with the first reason that a matcher gave."""
    default = (
        "no golden tensor was found that answers it"
        if side == "mine"
        else "no tensor of mine was found that answers it"
    )
    for each in placed(run):
        for tensor in each.tensors:
            key = key_of(each, tensor)
            if key not in answered:
                yield reasons.get(key) or each.unmatched(side, tensor, default)


def _golden_keys(matches: Iterable[Match]) -> set[Key]:
    """Golden tensors that are in a match; in a self-check both are mine."""
    return {_key(each.golden) for each in matches if not each.is_self_check}


def _keys(run: Pass) -> set[Key]:
    return {key_of(each, tensor) for each in placed(run) for tensor in each.tensors}


def _key(source: Source) -> Key:
    return source.order, source.name


def _key_of_record(record: TensorRecord) -> Key:
    return record.order, record.name


def _my_place(each: Match | Unmatched) -> tuple[int, bool, int]:
    return (each.mine if isinstance(each, Match) else each.source).place
