"""The matchers in order of trust, and what none of them had a word for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module

from ait_llm.core import TensorRecord
from ait_llm.core.plugins import load_plugins
from ait_llm.dumps.model import Traits
from ait_llm.match.by_kernel import is_compiled
from ait_llm.match.model import Match, Matcher, MatchOptions, SideName, Unmatched, matchers
from ait_llm.match.operators import Key, key_of, placed, remaining
from ait_llm.match.precision import mark_quantised
from ait_llm.match.views import View
from ait_llm.program.one_pass import Pass

# Module of each matcher; they register themselves when imported.
_MODULES = {
    "by_file": "ait_llm.match.by_file",
    "by_weight": "ait_llm.match.by_weight",
    "saved_mapping": "ait_llm.match.saved_mapping",
    "op_mapping": "ait_llm.match.op_mapping",
    "by_kernel": "ait_llm.match.by_kernel",
    "by_name": "ait_llm.match.by_name",
    "same_topology": "ait_llm.match.same_topology",
    "by_structure": "ait_llm.match.by_structure",
    "programs": "ait_llm.match.programs",
    "by_fusion": "ait_llm.match.by_fusion.matching",
    "by_value": "ait_llm.match.by_value",
}
# A matcher that is asked only where another one has said nothing: two readings of one topology
# would pair an operation twice.
_INSTEAD_OF = {"by_structure": "same_topology"}
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
    if any(side.fused for side in sides) and all(side.compiled for side in sides):
        names.append("by_fusion")
    elif all(side.compiled for side in sides) and (is_compiled(golden) or is_compiled(mine)):
        names.append("by_kernel")
    elif all(side.dotted for side in sides) or _are_unlike_programs(*sides):
        names.append("programs")
    elif not any(side.library for side in sides):
        names.append("by_name")
    elif all(side.library for side in sides):
        names += ["same_topology", "by_structure"]
    else:
        if options.op_mapping:
            names.append("op_mapping")
        names.append("programs")
    names += [name for name in matchers if name not in _MODULES]
    if options.by_value:
        names.append("by_value")
    return names


def _are_unlike_programs(golden: Traits, mine: Traits) -> bool:
    """True for programs of two kinds, of which one is neither modules nor library operations."""
    sides = golden, mine
    return (
        golden != mine
        and all(side.program for side in sides)
        and not all(side.dotted or side.library for side in sides)
    )


def match_runs(golden: Pass, mine: Pass, options: MatchOptions) -> list[Match | Unmatched]:
    """Say for every tensor of two runs which one answers it, or why none does.

    What a more trusted matcher paired stays as it is. A tensor of mine may answer several golden
    ones: a module's output and the input of the next are the same values. The list is in my
    execution order, golden tensors without a partner last.

    Raises:
        FormatError: a topology or ledger cannot be read.
    """
    matches: dict[tuple[Key, tuple[View, ...], Key], Match] = {}
    reasons: dict[tuple[SideName, Key], Unmatched] = {}
    for name in matchers_for(golden, mine, options):
        earlier = {key for key, _, _ in matches}
        if earlier and _keys(mine) <= earlier:
            break  # every tensor of mine has its answer
        if any(match.rule == _INSTEAD_OF.get(name) for match in matches.values()):
            continue
        sides = golden, mine
        if name == "by_value":  # it knows nothing of places and must not see what is settled
            answered = _golden_keys(matches.values())
            sides = remaining(golden, answered), remaining(mine, earlier)
        for each in load_matcher(name)(*sides, options):
            if isinstance(each, Unmatched):
                reasons.setdefault((each.side, _key(each.record)), each)
            elif _key(each.mine.record) not in earlier:
                mine_key, golden_key = _key(each.mine.record), _key(each.golden.record)
                matches.setdefault((mine_key, each.mine.views, golden_key), each)
    ordered: list[Match | Unmatched] = [*matches.values()]
    used = {(side, _key(record)) for match in matches.values() for side, record in match.uses}
    answered = {key for key, _, _ in matches} | {key for side, key in used if side == "mine"}
    ordered += _left("mine", mine, answered, reasons)
    ordered.sort(key=_my_place)
    answered = _golden_keys(matches.values())
    answered |= {key for side, key in used if side == "golden"}
    return mark_quantised([*ordered, *_left("golden", golden, answered, reasons)])


def _left(
    side: SideName,
    run: Pass,
    answered: set[Key],
    reasons: Mapping[tuple[SideName, Key], Unmatched],
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
                yield reasons.get((side, key)) or each.unmatched(side, tensor, default)


def _golden_keys(matches: Iterable[Match]) -> set[Key]:
    """Golden tensors that are in a match; in a self-check both are mine."""
    return {_key(each.golden.record) for each in matches if not each.is_self_check}


def _keys(run: Pass) -> set[Key]:
    return {key_of(each, tensor) for each in placed(run) for tensor in each.tensors}


def _key(record: TensorRecord) -> Key:
    return record.order, record.name


def _my_place(each: Match | Unmatched) -> tuple[int, bool, int]:
    record = each.mine.record if isinstance(each, Match) else each.record
    return record.order, record.role != "in", record.index
