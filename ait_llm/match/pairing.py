"""Which forward pass of the golden side belongs to which of mine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ait_llm.core import Problem
from ait_llm.dumps import Dump, Process
from ait_llm.errors import UsageError
from ait_llm.match.by_fusion.pairing import compiled_passes, pair_compiled
from ait_llm.match.file_runs import (
    run_of_files,
    run_of_saved_weights,
    run_of_weights,
    runs_of_metadata,
)
from ait_llm.match.model import SideName
from ait_llm.match.scenario import Input, Scenario
from ait_llm.match.tokens import find_offset
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of

_RANK_NAMES = ("RANK", "LOCAL_RANK")


@dataclass(frozen=True, slots=True)
class RunPair:
    """A pass of each side that belong together.

    Attributes:
        golden, mine: the passes.
        reason: why, in a few words.
    """

    golden: Pass
    mine: Pass
    reason: str


@dataclass(frozen=True, slots=True)
class Pairing:
    """All passes that can be compared, and what cannot.

    Attributes:
        pairs: in the order of my processes and passes.
        problems: passes and processes without a partner, losses, unfinished captures.
    """

    pairs: tuple[RunPair, ...]
    problems: tuple[Problem, ...]


def parse_steps(text: str) -> dict[int, int]:
    """Read a user's step map ``0:1,1:2``: golden step to my step, both numbers of passes.

    Raises:
        UsageError: it is not one, or names a step twice.
    """
    steps: dict[int, int] = {}
    for item in text.split(","):
        golden, colon, mine = (part.strip() for part in item.partition(":"))
        if not (colon and golden.isdecimal() and mine.isdecimal()):
            raise UsageError(f"step map {text!r}: {item.strip()!r} is not golden:mine, such as 0:1")
        if int(golden) in steps or int(mine) in steps.values():
            raise UsageError(f"step map {text!r} names a step twice")
        steps[int(golden)] = int(mine)
    return steps


def pair_runs(scenario: Scenario, steps: Mapping[int, int] | None = None) -> Pairing:
    """Pair the passes of two sides.

    Args:
        scenario: what is compared.
        steps: the user's choice, number of a golden pass to number of mine; None to find out.

    Raises:
        FormatError: a ledger, folder, table or shard cannot be read.
    """
    golden, mine = scenario.golden, scenario.mine
    if scenario.name == "manual":
        found, problems = runs_of_metadata(golden.path, mine.path)
        pairs = [RunPair(*pair, "written down by dump_data") for pair in found]
        return Pairing(tuple(pairs), tuple(problems))
    if scenario.name in ("file", "files"):
        pair = RunPair(run_of_files(golden.path), run_of_files(mine.path), "given")
        return Pairing((pair,), ())
    if scenario.name == "weights":
        pair = RunPair(_weights(golden), _weights(mine), "given")
        return Pairing((pair,), (*_captures("golden", golden), *_captures("mine", mine)))
    assert golden.dump is not None
    assert mine.dump is not None
    pairs = []
    problems = [*_captures("golden", golden), *_captures("mine", mine)]
    if golden.dump.traits.compiled and mine.dump.traits.compiled:
        compiled, left = pair_compiled(golden.dump, mine.dump, steps)
        return Pairing(tuple(RunPair(*each) for each in compiled), (*problems, *left))
    processes, left = pair_processes(golden.dump, mine.dump)
    problems += left
    for first, second, reason in processes:
        ours, theirs = _passes("golden", golden.dump, first), _passes("mine", mine.dump, second)
        problems += [*ours[1], *theirs[1]]
        counts = len(golden.dump.processes), len(mine.dump.processes)
        chosen, unpaired = _pair_passes(
            _with_share(ours[0], first, counts[0] if counts[1] == 1 else 1),
            _with_share(theirs[0], second, counts[1] if counts[0] == 1 else 1),
            (golden.step, mine.step),
            steps,
        )
        pairs += [
            RunPair(each.golden, each.mine, f"{reason}, {each.reason}" if reason else each.reason)
            for each in chosen
        ]
        problems += unpaired
    return Pairing(tuple(pairs), tuple(problems))


def _passes(side: SideName, dump: Dump, process: Process) -> tuple[list[Pass], list[Problem]]:
    """The passes of a process, and what is wrong with them."""
    if dump.traits.compiled:
        return compiled_passes(side, dump, process)
    return passes_of(dump, process), []


def _with_share(passes: list[Pass], process: Process, ranks: int) -> list[Pass]:
    """The passes with the share of the model that their process computes."""
    rank = _rank(process)
    if ranks == 1 or rank is None:
        return passes
    return [replace(each, share=(rank, ranks)) for each in passes]


def _weights(side: Input) -> Pass:
    if side.dump is None:
        return run_of_weights(side.shards)
    processes = side.dump.processes
    tensors = [
        (tensor.stem, tensor)
        for process in processes[:1]
        for tensor in side.dump.weights(device=process.device, pid=process.pid)
    ]
    return run_of_saved_weights(tensors, processes[0].device, processes[0].pid)


def _captures(side: SideName, given: Input) -> list[Problem]:
    """What the ledgers say is missing on one side."""
    if given.dump is None:
        return []
    return [
        Problem(side, process.problem)
        for process in given.dump.processes
        if process.problem is not None
    ]


def pair_processes(
    golden: Dump, mine: Dump
) -> tuple[list[tuple[Process, Process, str]], list[Problem]]:
    """Pair by rank, else by device, else by order; reasons only where there was a choice."""
    first, second = list(golden.processes), list(mine.processes)
    if len(first) == len(second) == 1:
        return [(first[0], second[0], "")], []
    if len(first) == 1 and _are_all_ranks(second):
        return [(first[0], process, f"rank {_rank(process)}") for process in second], []
    if len(second) == 1 and _are_all_ranks(first):
        return [(process, second[0], f"rank {_rank(process)}") for process in first], []
    for name, key_of in (("rank", _rank), ("device", _device)):
        keys = [[key_of(process) for process in side] for side in (first, second)]
        if any(None in side or len(set(side)) < len(side) for side in keys):
            continue
        partners = dict(zip(keys[1], second, strict=True))
        if not set(keys[0]) & set(keys[1]):
            continue
        pairs = [
            (process, partners[key], f"{name} {key}")
            for key, process in zip(keys[0], first, strict=True)
            if key in partners
        ]
        break
    else:
        pairs = [
            (*pair, f"process {number} of each side")
            for number, pair in enumerate(zip(first, second, strict=False))
        ]
    paired = {id(process) for pair in pairs for process in pair[:2]}
    sides: tuple[tuple[SideName, list[Process]], ...] = (("golden", first), ("mine", second))
    problems = [
        Problem(side, f"process {process.pid} on device {process.device} has no partner")
        for side, processes in sides
        for process in processes
        if id(process) not in paired
    ]
    return pairs, problems


def _are_all_ranks(processes: Sequence[Process]) -> bool:
    """True for the processes of one job, each rank once."""
    ranks = [_rank(process) for process in processes]
    return len(ranks) > 1 and set(ranks) == set(range(len(ranks)))


def _rank(process: Process) -> int | None:
    """The rank that the launcher of a distributed run gave the process."""
    environment = process.header.get("environment")
    for name in _RANK_NAMES:
        value = environment.get(name) if isinstance(environment, Mapping) else None
        if isinstance(value, str) and value.isdecimal() and value.isascii():
            return int(value)
    return None


def _device(process: Process) -> int | None:
    return process.device if process.device >= 0 else None


def _pair_passes(
    golden: Sequence[Pass],
    mine: Sequence[Pass],
    given: tuple[int | None, int | None],
    steps: Mapping[int, int] | None,
) -> tuple[list[RunPair], list[Problem]]:
    by_step = {run.step: run for run in mine}
    if steps is not None:
        return _as_told(golden, by_step, steps)
    explicit = None not in given
    offset, why = find_offset(golden, mine) if not explicit else (0, "")
    pairs = [
        RunPair(run, by_step[run.step + offset], _step_reason(run.step, run.step + offset, why))
        for run in golden
        if run.step + offset in by_step
    ]
    if explicit and not pairs and golden and mine:
        # folders that the user named belong together whatever their numbers say
        first = next((run for run in mine if _executed(run) == given[1]), mine[0])
        pairs = [RunPair(golden[0], first, "both execution counts were given")]
    return pairs, _unpaired(golden, mine, pairs, offset, why, explicit)


def _as_told(
    golden: Sequence[Pass], mine: Mapping[int, Pass], steps: Mapping[int, int]
) -> tuple[list[RunPair], list[Problem]]:
    by_step = {run.step: run for run in golden}
    pairs, problems = [], []
    for first, second in steps.items():
        absent: list[tuple[SideName, int]] = []
        if first not in by_step:
            absent.append(("golden", first))
        if second not in mine:
            absent.append(("mine", second))
        problems += [Problem(side, f"step {step} was not captured") for side, step in absent]
        if not absent:
            pairs.append(RunPair(by_step[first], mine[second], "given step map"))
    return pairs, problems


def _unpaired(
    golden: Sequence[Pass],
    mine: Sequence[Pass],
    pairs: Sequence[RunPair],
    offset: int,
    why: str,
    explicit: bool,
) -> list[Problem]:
    paired = {id(run) for pair in pairs for run in (pair.golden, pair.mine)}
    sides: tuple[tuple[SideName, Sequence[Pass], int], ...] = (
        ("golden", golden, -offset),
        ("mine", mine, offset),
    )
    problems = []
    for side, runs, warm_up in sides:
        for run in runs:
            if id(run) in paired:
                continue
            if run.step < warm_up:
                problems.append(
                    Problem(
                        side,
                        f"step {run.step} is a warm-up, or not captured on the other side: {why}",
                        False,
                    )
                )
                continue
            # a folder that was asked for by number may hold another pass, which was not asked for
            decides = not (explicit and pairs)
            other = "the golden" if side == "mine" else "my"
            problems.append(
                Problem(
                    side,
                    f"step {run.step} ({_place(run)}) has no counterpart on {other} side",
                    decides,
                )
            )
    return problems


def _step_reason(golden: int, mine: int, why: str) -> str:
    if golden == mine and not why:
        return f"step {golden}"
    return f"golden step {golden} and my step {mine}: {why}"


def _executed(run: Pass) -> int:
    return run.operations[0].step


def _place(run: Pass) -> str:
    count = len(run.operations)
    first = run.operations[0]
    return f"{count} operations from {first.name}" if count > 1 else first.name
