"""Which processes of two dumps of compiled graphs belong together, and their executions."""

from __future__ import annotations

from collections.abc import Mapping

from ait_llm.core import Problem
from ait_llm.dumps.model import Dump, Process
from ait_llm.match.by_fusion.graph import UnfusedGraph, chains_of, graphs_of
from ait_llm.match.by_fusion.process import CompiledProcess, CompiledSide
from ait_llm.match.by_fusion.steps import pair_executions
from ait_llm.match.model import SideName
from ait_llm.program.one_pass import Pass

_NO_GRAPH = "no dynamo_original_graph file lies above its dump files"
_UNKNOWN = "so nothing tells what its operators were fused from"

PairedRuns = tuple[Pass, Pass, str]


def pair_compiled(
    golden: Dump, mine: Dump, steps: Mapping[int, int] | None = None
) -> tuple[list[PairedRuns], list[Problem]]:
    """Pair the executions of all graphs of all processes.

    Args:
        golden, mine: dumps of compiled graphs.
        steps: the user's choice, golden token to my token; None to find out.

    Returns:
        The runs that belong together with the reason, and what has no partner or does not fit.

    Raises:
        FormatError: a folder cannot be listed.
    """
    sides, problems = _sides(golden, mine)
    pairs: list[PairedRuns] = []
    processes, left = _pair_processes(sides)
    problems += left
    for first, second, reason in processes:
        one, other = CompiledProcess(sides[0], first), CompiledProcess(sides[1], second)
        found, missing = pair_executions(one, other, steps)
        problems += [*one.problems, *other.problems, *missing]
        pairs += [(a, b, f"{reason}, {why}" if reason else why) for a, b, why in found]
    return pairs, problems


def compiled_passes(
    side: SideName, dump: Dump, process: Process
) -> tuple[list[Pass], list[Problem]]:
    """The executions of all graphs of a process as passes, in the order in which they began.

    Args:
        side: whose they are.
        dump: of compiled graphs.
        process: of the dump.

    Returns:
        The passes, numbered from 0, and what is wrong with their graphs.

    Raises:
        FormatError: a folder cannot be listed.
    """
    graphs: list[UnfusedGraph] = []
    chains: dict[str, tuple[str, ...]] = {}
    problems: list[Problem] = []
    if dump.traits.fused:
        graphs, unreadable = graphs_of(dump.graph_files)
        chains, also = chains_of(dump.build_graph_files)
        problems = [
            Problem(side, f"a graph cannot be read: {text}") for text in (*unreadable, *also)
        ]
        if not graphs:
            problems.append(Problem(side, f"{_NO_GRAPH}, {_UNKNOWN}"))
    found = CompiledProcess(CompiledSide(side, dump, tuple(graphs), chains), process)
    runs = [found.run(each, number) for number, each in enumerate(found.executions)]
    return runs, [*problems, *found.problems]


def _sides(golden: Dump, mine: Dump) -> tuple[tuple[CompiledSide, CompiledSide], list[Problem]]:
    problems: list[Problem] = []
    found: dict[SideName, list[UnfusedGraph]] = {"golden": [], "mine": []}
    chains: dict[SideName, dict[str, tuple[str, ...]]] = {"golden": {}, "mine": {}}
    named: tuple[tuple[SideName, Dump], ...] = (("golden", golden), ("mine", mine))
    for name, dump in named:
        if dump.traits.fused:
            found[name], unreadable = graphs_of(dump.graph_files)
            chains[name], also = chains_of(dump.build_graph_files)
            unreadable += also
            problems += [Problem(name, f"a graph cannot be read: {text}") for text in unreadable]
    for name, dump in named:
        if dump.traits.fused and not found[name]:
            other: SideName = "mine" if name == "golden" else "golden"
            found[name] = found[other]
            text = (
                f"{_NO_GRAPH}; that of the other side is used"
                if found[name]
                else f"{_NO_GRAPH}, {_UNKNOWN}"
            )
            problems.append(Problem(name, text, decides=not found[name]))
    sides = [CompiledSide(name, dump, tuple(found[name]), chains[name]) for name, dump in named]
    return (sides[0], sides[1]), problems


def _pair_processes(
    sides: tuple[CompiledSide, CompiledSide],
) -> tuple[list[tuple[Process, Process, str]], list[Problem]]:
    """Pair by rank; where a side has none, in the order of devices."""
    golden, mine = (sorted(side.dump.processes, key=_device_order) for side in sides)
    if len(golden) == len(mine) == 1:
        return [(golden[0], mine[0], "")], []
    ranks = [
        [rank_of(side.dump, each) for each in processes]
        for side, processes in zip(sides, (golden, mine), strict=True)
    ]
    pairs: list[tuple[Process, Process, str]]
    if all(None not in side and len({*side}) == len(side) for side in ranks):
        partners = dict(zip(ranks[1], mine, strict=True))
        pairs = [
            (process, partners[rank], f"rank {rank}")
            for rank, process in zip(ranks[0], golden, strict=True)
            if rank in partners
        ]
    else:
        pairs = [
            (*pair, f"device {number} of each side")
            for number, pair in enumerate(zip(golden, mine, strict=False))
        ]
    paired = {id(process) for pair in pairs for process in pair[:2]}
    problems = [
        Problem(side.name, f"{_title(rank, process)} has no partner on {side.other} side")
        for side, processes, known in zip(sides, (golden, mine), ranks, strict=True)
        for process, rank in zip(processes, known, strict=True)
        if id(process) not in paired
    ]
    return pairs, problems


def _device_order(process: Process) -> tuple[int, int]:
    return process.device, process.pid


def _title(rank: int | None, process: Process) -> str:
    return f"rank {rank}" if rank is not None else f"device {process.device}"


def rank_of(dump: Dump, process: Process) -> int | None:
    """The rank of a process of a dump of compiled graphs; None if its folders do not say."""
    operations = dump.operations(device=process.device, pid=process.pid)
    first = next(iter(operations), None)
    return None if first is None or first.rank < 0 else first.rank
