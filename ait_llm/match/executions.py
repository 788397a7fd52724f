"""Which executions of two dumps of compiled graphs belong together.

Graphs are paired by the names of their nodes, and by their numbers where that leaves a choice;
executions by how often their graph ran before. Where the compiler took one model in other pieces on
each side, graphs have no counterparts, and calls of the model are paired instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ait_llm.core import Problem
from ait_llm.dumps.model import Dump, Process
from ait_llm.match.model import SideName
from ait_llm.program.compiled import ENOUGH, CompiledProcess, Execution
from ait_llm.program.ge.graph import Unfused
from ait_llm.program.one_pass import Pass

_SIDES: tuple[SideName, SideName] = ("golden", "mine")
_OTHER = {"golden": "my", "mine": "the golden"}
_LITTLE = 0.5  # share of names that graphs of one number have in common at least
_SHOWN = 8  # executions without a partner that are listed one by one
_NO_GRAPH = "no dynamo_original_graph file lies above its dump files"
_UNKNOWN = "so nothing tells what its operators were fused from"

Pair = tuple[Execution, Execution, str]
PairedPasses = tuple[Pass, Pass, str]


def compiled_passes(
    side: SideName, dump: Dump, process: Process
) -> tuple[list[Pass], list[Problem]]:
    """The executions of all graphs of a process as passes, in the order in which they began.

    Raises:
        FormatError: a folder cannot be listed.
    """
    [unfused], problems = unfused_graphs({side: dump})
    found = CompiledProcess(dump, process, unfused)
    return found.passes, [*problems, *(Problem(side, text) for text in found.problems)]


def unfused_graphs(dumps: Mapping[SideName, Dump]) -> tuple[list[Unfused], list[Problem]]:
    """What dumps know of their graphs before fusion, or another one where one has nothing.

    Returns:
        That of each dump, and what is missing or cannot be read.
    """
    found = {side: Unfused.of(dump) for side, dump in dumps.items()}
    problems = [
        Problem(side, f"a graph cannot be read: {text}")
        for side, unfused in found.items()
        for text in unfused.problems
    ]
    lent = next((each.graphs for each in found.values() if each.graphs), ())
    for side, dump in dumps.items():
        if dump.traits.fused and not found[side].graphs:
            found[side] = replace(found[side], graphs=lent)
            text = "; that of the other side is used" if lent else f", {_UNKNOWN}"
            found_none = _only_prints(dump.graph_prints) or _NO_GRAPH
            problems.append(Problem(side, f"{found_none}{text}", decides=not lent))
    return list(found.values()), problems


def _only_prints(prints: Sequence[Path]) -> str:
    """What is said of graphs that were printed as code; empty where none was."""
    if not prints:
        return ""
    return (
        f"the graph was dumped as Python code ({prints[0].name}), which does not tell the "
        "operators of the engine; set config.debug.graph_dump.type to txt"
    )


def go_by_calls(golden: CompiledProcess, mine: CompiledProcess) -> bool:
    """True if calls of the model have to be paired, for graphs cannot be.

    Calls run other graphs on each side, one after the other; or one side compiled again where the
    other one went on with the graph that it had.
    """
    if any(side.dump.traits.fused for side in (golden, mine)):
        return False
    partners = dict(_pair_models(golden, mine)[0])
    for ours, theirs in zip(golden.calls, mine.calls, strict=False):
        told = all(each.model_call is not None for each in (*ours, *theirs))
        if len(ours) == len(theirs) == 1 and not told:
            continue
        are_alike = len(ours) == len(theirs) and all(map(_is_one_graph, ours, theirs))
        are_partners = [partners.get(each.model) for each in ours] == [
            each.model for each in theirs
        ]
        if len(ours) == len(theirs) == 1:
            if are_alike and not are_partners:
                return True
        elif not (are_alike and are_partners):
            return True
    return False


def _is_one_graph(golden: Execution, mine: Execution) -> bool:
    """True for executions of graphs that call the same; a part of a graph calls less.

    Names prove nothing: symbolic sizes count in their numbers.
    """
    ours, theirs = golden.targets, mine.targets
    return (ours & theirs).total() >= ENOUGH * max(ours.total(), theirs.total())


def pair_executions(
    golden: CompiledProcess, mine: CompiledProcess, steps: Mapping[int, int] | None = None
) -> tuple[list[PairedPasses], list[Problem]]:
    """Pair the executions of two processes.

    Args:
        golden, mine: that belong together.
        steps: the user's choice, golden token to my token; None to find out.

    Returns:
        Passes that belong together with the reason, in my order, and what has no partner.
    """
    models, differing = _pair_models(golden, mine)
    pairs = list(_by_step(golden, mine, models))
    tokens = _tokens(golden.executions, mine.executions, pairs)
    if steps is not None:
        pairs, alone = _as_told(golden.executions, mine.executions, tokens, steps)
    else:
        alone = [*_without_partner(golden, mine, tokens, pairs)]
    pairs.sort(key=lambda pair: tokens[id(pair[1])])
    found = [
        (golden.run(one, tokens[id(one)]), mine.run(other, tokens[id(other)]), reason)
        for one, other, reason in pairs
    ]
    wrong = [
        Problem(side, text)
        for side, process in zip(_SIDES, (golden, mine), strict=True)
        for text in (*process.problems, *process.gaps)
    ]
    return found, [*wrong, *differing, *alone, *_never_dumped(golden, mine)]


def _pair_models(
    golden: CompiledProcess, mine: CompiledProcess
) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Compiled graphs that belong together."""
    shares = _Shares(golden, mine)
    left = list(mine.models)
    pairs: list[tuple[str, str]] = []
    problems = []
    # those whose number has its equal first, so that no other graph takes it away
    ordered = sorted(golden.models, key=lambda model: not shares.same(model))
    for model in ordered:
        if not left:
            break
        chosen = _partner(model, left, shares)
        if chosen is None:
            continue  # numbers that differ and names that differ
        share = shares.of(model, chosen)
        given_back = golden.results(model)
        is_fused = bool(given_back) and given_back == mine.results(chosen)
        if not is_fused and share < (_LITTLE if chosen in shares.same(model) else ENOUGH):
            problems.append(
                Problem(
                    "both",
                    f"golden {model or 'graph'} and my {chosen or 'graph'} have "
                    f"{share:.0%} of their names in common only; are they of the same model?",
                )
            )
        pairs.append((model, chosen))
        left.remove(chosen)
    return pairs, problems


def _partner(model: str, left: Sequence[str], shares: _Shares) -> str | None:
    """The graph of mine that a golden graph is; None where neither number nor names tell."""
    same = [each for each in shares.same(model) if each in left]
    settled = next((each for each in same if shares.is_settled(each)), None)
    if settled is not None:
        return settled
    free = [each for each in left if not shares.is_settled(each)] or list(left)
    near = min(free, key=lambda each: (-shares.of(model, each), shares.distance(model, each)))
    if same and (shares.of(model, same[0]) >= ENOUGH or shares.of(model, near) < ENOUGH):
        return same[0]
    if shares.of(model, near) >= ENOUGH:
        return near
    if shares.numbered(model, near):
        return None
    return min(free, key=lambda each: shares.distance(model, each))


class _Shares:
    """What the compiled graphs of two processes have in common."""

    def __init__(self, golden: CompiledProcess, mine: CompiledProcess) -> None:
        self._golden, self._mine = golden, mine
        self._places = [list(golden.models), list(mine.models)]
        of_fx = not all(each.dump.traits.fused for each in (golden, mine))
        names, others = (
            {each: side.nodes(each, of_fx=of_fx) for each in side.models} for side in (golden, mine)
        )
        self._shares = {
            (one, other): _share(names[one], others[other], golden.views(one) | mine.views(other))
            for one in names
            for other in others
        }

    def of(self, golden: str, mine: str) -> float:
        """Share of names in common."""
        return self._shares[golden, mine]

    def same(self, golden: str) -> list[str]:
        """Graphs of mine of the same number."""
        number = self._golden.number_of(golden)
        if number is None:
            return []
        return [each for each in self._places[1] if self._mine.number_of(each) == number]

    def is_settled(self, mine: str) -> bool:
        """True if no other golden graph explains mine better than the one of its number.

        That of a dump from which most nodes were left out has a few names in common with all.
        """
        for golden in self._places[0]:
            if mine in self.same(golden):
                own = self.of(golden, mine)
                return own >= _LITTLE and all(
                    self.of(other, mine) <= own for other in self._places[0]
                )
        return False

    def numbered(self, golden: str, mine: str) -> bool:
        """True if both numbers are known."""
        return None not in (self._golden.number_of(golden), self._mine.number_of(mine))

    def distance(self, golden: str, mine: str) -> int:
        """How far apart they are in the order in which graphs first ran."""
        return abs(self._places[0].index(golden) - self._places[1].index(mine))


def _share(golden: frozenset[str], mine: frozenset[str], views: frozenset[str]) -> float:
    """Share of names in common, of the side with fewer: not every node is in every dump.

    Views that only one side has say nothing.
    """
    common = golden & mine
    fewer = min(len(golden - (views - common)), len(mine - (views - common)))
    return len(common) / fewer if fewer else ENOUGH


def _by_step(
    golden: CompiledProcess, mine: CompiledProcess, models: Sequence[tuple[str, str]]
) -> Iterator[Pair]:
    """Executions of equal number within their graph."""
    if len(golden.executions) == len(mine.executions) == 1 == len(models):
        # folders that the user named belong together whatever their numbers say
        one, other = golden.executions[0], mine.executions[0]
        same = one.title == other.title
        yield one, other, one.title if same else "the only execution of each side"
        return
    shift = _shift(golden, mine)
    for theirs, ours in models:
        by_step: dict[int, list[Execution]] = {}
        for execution in mine.models[ours]:
            by_step.setdefault(execution.step, []).append(execution)
        for execution in golden.models[theirs]:
            partners = by_step.get(execution.step + shift)
            if partners:
                partner = partners.pop(0)
                yield execution, partner, _reason(execution, partner)


def _reason(golden: Execution, mine: Execution) -> str:
    if golden.title == mine.title:
        return golden.title
    return f"golden {golden.title} and my {mine.title}"


def _shift(golden: CompiledProcess, mine: CompiledProcess) -> int:
    """What to add to a golden step to get mine.

    Old versions of torchair count from 1 in the folders of FX nodes, and readers take that away.
    A graph engine of that time may have counted from 1 as well; its folders do not tell.
    """
    if not golden.executions or not mine.executions:
        return 0
    first = [min(each.step for each in side.executions) for side in (golden, mine)]
    old = [any(each.counted_from for each in side.executions) for side in (golden, mine)]
    if old[0] and not old[1] and first == [0, 1]:
        return 1
    if old[1] and not old[0] and first == [1, 0]:
        return -1
    return 0


def _tokens(
    golden: Sequence[Execution], mine: Sequence[Execution], pairs: Sequence[Pair]
) -> dict[int, int]:
    """Place of each execution in the program: prefill 0, then each decode step.

    Executions that belong together have one number, also where a side lacks some before them.
    """
    partners = {id(one): other for one, other, _ in pairs}
    paired = {id(other) for _, other, _ in pairs}
    places = {id(each): place for place, each in enumerate(mine)}
    tokens: dict[int, int] = {}
    count = 0
    for execution in golden:
        partner = partners.get(id(execution))
        if partner is not None:
            for each in mine[: places[id(partner)]]:
                if id(each) not in tokens and id(each) not in paired:
                    tokens[id(each)] = count
                    count += 1
            tokens[id(partner)] = count
        tokens[id(execution)] = count
        count += 1
    for each in mine:
        if id(each) not in tokens:
            tokens[id(each)] = count
            count += 1
    return tokens


def _as_told(
    golden: Sequence[Execution],
    mine: Sequence[Execution],
    tokens: Mapping[int, int],
    steps: Mapping[int, int],
) -> tuple[list[Pair], list[Problem]]:
    at = [{tokens[id(each)]: each for each in side} for side in (golden, mine)]
    pairs: list[Pair] = []
    problems = []
    for wanted in steps.items():
        for name, known, step in zip(_SIDES, at, wanted, strict=True):
            if step not in known:
                problems.append(Problem(name, f"step {step} was not captured"))
        if wanted[0] in at[0] and wanted[1] in at[1]:
            pairs.append((at[0][wanted[0]], at[1][wanted[1]], "given step map"))
    return pairs, problems


def _without_partner(
    golden: CompiledProcess,
    mine: CompiledProcess,
    tokens: Mapping[int, int],
    pairs: Sequence[Pair],
) -> Iterator[Problem]:
    paired = {id(execution) for pair in pairs for execution in pair[:2]}
    for side, process in zip(_SIDES, (golden, mine), strict=True):
        nowhere = f"no counterpart on {_OTHER[side]} side"
        whole = [
            runs for runs in process.models.values() if not any(id(each) in paired for each in runs)
        ]
        yield from (
            Problem(side, f"{_graph(runs, tokens)} has {nowhere}", whole=True) for runs in whole
        )
        told = {id(each) for runs in whole for each in runs}
        left = [each for each in process.executions if id(each) not in paired | told]
        for each in left[:_SHOWN]:
            place = f"token {tokens[id(each)]}, {len(each.operations)} operations"
            yield Problem(side, f"{each.title} ({place}) has {nowhere}")
        if len(left) > _SHOWN:
            yield Problem(side, f"{len(left) - _SHOWN} more executions have {nowhere}")


def _graph(runs: Sequence[Execution], tokens: Mapping[int, int]) -> str:
    """A compiled graph none of whose executions was compared: ``graph_3 (tokens 2 to 4, ...)``."""
    first, last = tokens[id(runs[0])], tokens[id(runs[-1])]
    place = f"token {first}" if len(runs) == 1 else f"tokens {first} to {last}"
    return f"{runs[0].graph} ({place}, {len(runs[0].operations)} operations)"


def _never_dumped(golden: CompiledProcess, mine: CompiledProcess) -> Iterator[Problem]:
    """Graphs that were compiled and of which neither side has any data.

    They may have run in steps that were not asked for, so this decides nothing.
    """
    dumped = golden.numbers | mine.numbers
    if None in dumped:
        return
    compiled = golden.compiled | mine.compiled
    for number in sorted(compiled - dumped):
        text = f"graph_{number} was compiled, and neither side has data of it"
        yield Problem("both", text, decides=False)
