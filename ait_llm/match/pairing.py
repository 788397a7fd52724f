"""Which forward pass of the golden side belongs to which of mine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ait_llm.core import Problem
from ait_llm.dumps import Dump, Process
from ait_llm.dumps.runs import newest_run
from ait_llm.errors import UsageError
from ait_llm.match.captures import captures_say
from ait_llm.match.file_runs import (
    run_of_files,
    run_of_saved_weights,
    run_of_weights,
    runs_of_metadata,
)
from ait_llm.match.model import SideName
from ait_llm.match.partings import Parted, Parting, by_generation, find_partings
from ait_llm.match.scenario import Input, Scenario
from ait_llm.match.scheduled import Scheduled, by_schedule
from ait_llm.match.scheduled_rest import find_partings as find_scheduled_partings
from ait_llm.match.scheduled_rest import rest_problems
from ait_llm.match.tokens import find_offset
from ait_llm.program.one_pass import Pass
from ait_llm.program.padded_requests import row_keys
from ait_llm.program.passes import passes_of
from ait_llm.program.proposals import in_equal_calls, needs_places, with_places
from ait_llm.program.readings import Reading, read_the_same, readings

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
        partings: where the runs chose different tokens; what comes behind is not among the pairs.
    """

    pairs: tuple[RunPair, ...]
    problems: tuple[Problem, ...]
    partings: tuple[Parting, ...] = ()


_PADDED = 2  # axes of the tokens of a batch


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
        return Pairing((pair,), captures_say(golden, mine))
    assert golden.dump is not None
    assert mine.dump is not None
    pairs = []
    problems = [*captures_say(golden, mine)]
    processes, left = pair_processes(golden.dump, mine.dump)
    if golden.dump.traits.compiled and mine.dump.traits.compiled:
        pairs, also, partings = _compiled(golden.dump, mine.dump, processes, steps)
        return Pairing(tuple(pairs), (*problems, *left, *also), tuple(partings))
    problems += left
    partings = []
    for first, second, reason in processes:
        ours, theirs = _passes("golden", golden.dump, first), _passes("mine", mine.dump, second)
        problems += [*ours[1], *theirs[1]]
        parts = _parts(newest_run(golden.dump.processes), newest_run(mine.dump.processes))
        chosen, unpaired, parted = _pair_passes(
            _with_share(ours[0], golden.dump, first, parts[0]),
            _with_share(theirs[0], mine.dump, second, parts[1]),
            (golden.step, mine.step),
            steps,
        )
        pairs += [_because(each, reason) for each in chosen]
        problems += unpaired
        partings += parted
    return Pairing(tuple(_with_peers(pairs)), tuple(problems), tuple(partings))


def _parts(golden: Sequence[Process], mine: Sequence[Process]) -> tuple[int, int]:
    """Into how many parts one side cuts what a process of the other computes; 1 on that side."""
    counts = len(golden), len(mine)
    if 0 in counts or max(counts) % min(counts):
        return 1, 1
    return max(1, counts[0] // counts[1]), max(1, counts[1] // counts[0])


def _with_peers(pairs: Sequence[RunPair]) -> list[RunPair]:
    """The pairs, in which ranks that share out one pass know one another."""
    groups: dict[tuple[bool, int, int, int, int], list[Pass]] = {}
    for pair in pairs:
        for own, other in ((pair.golden, pair.mine), (pair.mine, pair.golden)):
            if own.share[1] > 1:
                groups.setdefault(_origin(own, other, own is pair.mine), []).append(own)

    def known(own: Pass, other: Pass, *, of_mine: bool) -> Pass:
        if own.share[1] == 1:
            return own
        found = groups[_origin(own, other, of_mine)]
        return replace(own, peers=tuple(each for each in found if each is not own))

    return [
        replace(
            pair,
            golden=known(pair.golden, pair.mine, of_mine=False),
            mine=known(pair.mine, pair.golden, of_mine=True),
        )
        for pair in pairs
    ]


def _origin(own: Pass, other: Pass, of_mine: bool) -> tuple[bool, int, int, int, int]:
    """What the passes of ranks have in common that share out one pass of the other side."""
    return of_mine, other.device, other.pid, other.step, own.step


def _compiled(
    golden: Dump,
    mine: Dump,
    processes: Sequence[tuple[Process, Process, str]],
    steps: Mapping[int, int] | None,
) -> tuple[list[RunPair], list[Problem], list[Parting]]:
    """The executions of compiled graphs that belong together, or the calls of the model."""
    from ait_llm.match.executions import go_by_calls, pair_executions, unfused_graphs
    from ait_llm.program.compiled import CompiledProcess  # other programs have no graphs

    unfused, problems = unfused_graphs({"golden": golden, "mine": mine})
    pairs: list[RunPair] = []
    partings: list[Parting] = []
    for first, second, reason in processes:
        ours = CompiledProcess(golden, first, unfused[0])
        theirs = CompiledProcess(mine, second, unfused[1])
        if go_by_calls(ours, theirs):
            sides = ours.passes, theirs.passes
            chosen, missing, parted = _pair_passes(*sides, (None, None), steps)
            pairs += [_because(each, reason) for each in chosen]
            problems += missing
            partings += parted
            continue
        found, missing = pair_executions(ours, theirs, steps)
        problems += missing
        told = [RunPair(one, other, _both(reason, why)) for one, other, why in found]
        if steps is None:
            told, ended = _up_to_partings(told)
            partings += ended
        pairs += told
    return pairs, problems, partings


def _up_to_partings(pairs: Sequence[RunPair]) -> tuple[list[RunPair], list[Parting]]:
    """Pairs of executions up to where the runs chose different tokens."""
    read = readings([pair.golden for pair in pairs]), readings([pair.mine for pair in pairs])
    parted = find_partings(*read, [(pair.golden, pair.mine) for pair in pairs])
    kept = [pair for pair in pairs if id(pair.golden) not in parted.behind]
    return _without(kept, parted), list(parted.partings)


def _because(pair: RunPair, reason: str) -> RunPair:
    """A pair of passes of two processes that belong together for this reason."""
    return replace(pair, reason=_both(reason, pair.reason))


def _both(first: str, second: str) -> str:
    return f"{first}, {second}" if first else second


def _passes(side: SideName, dump: Dump, process: Process) -> tuple[list[Pass], list[Problem]]:
    """The passes of a process, and what is wrong with them."""
    if dump.traits.compiled:
        from ait_llm.match.executions import compiled_passes

        return compiled_passes(side, dump, process)
    return passes_of(dump, process), []


def _with_share(passes: list[Pass], dump: Dump, process: Process, ranks: int) -> list[Pass]:
    """The passes with the share of the model that their process computes."""
    rank = _rank(dump, process) if ranks > 1 else None
    if rank is None:
        return passes
    return [replace(each, share=(rank % ranks, ranks)) for each in passes]


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


def pair_processes(
    golden: Dump, mine: Dump
) -> tuple[list[tuple[Process, Process, str]], list[Problem]]:
    """Pair by rank, else by device, else by order; reasons only where there was a choice."""
    first, second = newest_run(golden.processes), newest_run(mine.processes)
    if len(first) == len(second) == 1:
        return [(first[0], second[0], "")], []
    compiled = golden.traits.compiled and mine.traits.compiled
    ranks = [_rank(golden, each) for each in first], [_rank(mine, each) for each in second]
    parts = _parts(first, second)
    whole = (_are_all_ranks(*side) for side in zip((first, second), ranks, strict=True))
    if not compiled and max(parts) > 1 and all(whole):
        return _by_shares(first, second, ranks, parts), []
    devices = [_device(each) for each in first], [_device(each) for each in second]
    # devices of the graph engine are another machine's, and FX nodes have none
    for name, keys in (("rank", ranks), *(() if compiled else (("device", devices),))):
        if any(None in side or len(set(side)) < len(side) for side in keys):
            continue
        partners = dict(zip(keys[1], second, strict=True))
        if not compiled and not set(keys[0]) & set(keys[1]):
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
    sides: tuple[tuple[SideName, list[Process], list[int | None]], ...]
    sides = (("golden", first, ranks[0]), ("mine", second, ranks[1]))
    problems = [
        Problem(
            side,
            f"process {process.pid} on device {process.device}{_of(rank)} has no partner",
            whole=True,
        )
        for side, processes, known in sides
        for process, rank in zip(processes, known, strict=True)
        if id(process) not in paired
    ]
    return pairs, problems


def _of(rank: int | None) -> str:
    return "" if rank is None else f" (rank {rank})"


def _by_shares(
    golden: Sequence[Process],
    mine: Sequence[Process],
    ranks: tuple[Sequence[int | None], Sequence[int | None]],
    parts: tuple[int, int],
) -> list[tuple[Process, Process, str]]:
    """Each rank of the side that has more of them, with the process that it does a share of."""
    ours, theirs = dict(zip(ranks[0], golden, strict=True)), dict(zip(ranks[1], mine, strict=True))
    if len(golden) == 1:
        ours = {0: golden[0]}
    if len(mine) == 1:
        theirs = {0: mine[0]}
    return [
        (ours[rank // parts[1]], theirs[rank // parts[0]], f"rank {rank}")
        for rank in range(max(len(golden), len(mine)))
    ]


def _are_all_ranks(processes: Sequence[Process], ranks: Sequence[int | None]) -> bool:
    """True for the processes of one job, each rank once; also for one that ran alone."""
    if any((_number(each, "WORLD_SIZE") or 0) > len(processes) for each in processes):
        return False  # others of its job were not captured, or are lost
    return len(ranks) == 1 or set(ranks) == set(range(len(ranks)))


def _rank(dump: Dump, process: Process) -> int | None:
    """The rank of a process in its job: its folder has it, else its launcher gave it."""
    if dump.traits.compiled:
        first = next(iter(dump.operations(device=process.device, pid=process.pid)), None)
        return None if first is None or first.rank < 0 else first.rank
    found = (_number(process, name) for name in _RANK_NAMES)
    return next((each for each in found if each is not None), None)


def _number(process: Process, name: str) -> int | None:
    """A number that the launcher of a process set in its environment."""
    environment = process.header.get("environment")
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
) -> tuple[list[RunPair], list[Problem], list[Parting]]:
    """The passes that belong together, up to where the runs chose different tokens."""
    if steps is not None:
        pairs, problems = _as_told(golden, {run.step: run for run in mine}, steps)
        return pairs, problems, []
    explicit = None not in given
    read = readings(golden), readings(mine)
    alike = read_the_same(*read)
    scheduled = any(each.run.schedule is not None for side in read for each in side)
    others = scheduled or not alike or not in_equal_calls(*read)
    proposed = others and any(map(needs_places, read))
    shared = by_schedule(*(map(with_places, read) if proposed else read))
    if shared is not None and shared.pairs:
        return _scheduled(shared)
    told = explicit or alike
    placed = None if told else by_generation(*read)
    offset, why = (0, "") if told or placed is not None else find_offset(golden, mine)
    pairs = _counted(golden, mine, offset, why) if placed is None else _placed(placed)
    if explicit and not pairs and golden and mine:
        # folders that the user named belong together whatever their numbers say
        first = next((run for run in mine if _executed(run) == given[1]), mine[0])
        pairs = [RunPair(golden[0], first, "both execution counts were given")]
    parted = find_partings(*read, [(pair.golden, pair.mine) for pair in pairs])
    keys = (_keys(read[0]), _keys(read[1])) if _have_other_rows(pairs, *read) else ({}, {})
    pairs = [pair for pair in pairs if id(pair.golden) not in parted.behind]
    left = [[run for run in side if id(run) not in parted.behind] for side in (golden, mine)]
    problems = _unpaired(left[0], left[1], pairs, offset, why, explicit)
    found = [_with_keys(pair, *keys) for pair in _without(pairs, parted)]
    return found, problems, list(parted.partings)


_Keys = Mapping[int, tuple[int, ...]]


def _have_other_rows(
    pairs: Sequence[RunPair], golden: Sequence[Reading], mine: Sequence[Reading]
) -> bool:
    """True if passes that belong together have not as many rows."""
    sizes = [
        {each.run.step: len(each.ids.ids) for each in side if each.ids is not None}
        for side in (golden, mine)
    ]
    return any(sizes[0].get(pair.golden.step) != sizes[1].get(pair.mine.step) for pair in pairs)


def _keys(side: Sequence[Reading]) -> _Keys:
    """What each row of a batch has read so far, by the step of the pass."""
    return {
        each.run.step: keys
        for each, keys in zip(side, row_keys(side), strict=True)
        if each.ids is not None
        and each.ids.ids.ndim == _PADDED
        and each.run.schedule is None
        and len(each.ids.ids) == len(keys)
    }


def _with_keys(pair: RunPair, golden: _Keys, mine: _Keys) -> RunPair:
    """The pair, whose passes know what their rows have read, where they have not as many."""
    ours, theirs = golden.get(pair.golden.step, ()), mine.get(pair.mine.step, ())
    if not ours or not theirs or len(ours) == len(theirs):
        return pair
    return replace(
        pair,
        golden=replace(pair.golden, row_keys=ours),
        mine=replace(pair.mine, row_keys=theirs),
    )


def _scheduled(shared: Scheduled) -> tuple[list[RunPair], list[Problem], list[Parting]]:
    """Passes that compute the same tokens, as an engine says."""
    pairs = [
        RunPair(each.golden, each.mine, _tokens_reason(each.golden, each.mine))
        for each in shared.pairs
    ]
    partings = find_scheduled_partings(shared)
    return pairs, list(rest_problems(shared, partings)), partings


def _tokens_reason(golden: Pass, mine: Pass) -> str:
    count = len(mine.same_rows or ())
    tokens = f"{count} token{'s' * (count != 1)} of the same requests"
    return f"golden step {golden.step} and my step {mine.step}: {tokens}"


def _without(pairs: Sequence[RunPair], parted: Parted) -> list[RunPair]:
    """The pairs, whose passes know which requests are not compared."""
    return [
        replace(pair, mine=replace(pair.mine, left_out=parted.without[id(pair.mine)]))
        if id(pair.mine) in parted.without
        else pair
        for pair in pairs
    ]


def _counted(
    golden: Sequence[Pass],
    mine: Sequence[Pass],
    offset: int,
    why: str,
) -> list[RunPair]:
    """Passes of equal numbers, but for the offset."""
    by_step = {run.step: run for run in mine}
    return [
        RunPair(run, by_step[run.step + offset], _step_reason(run.step, run.step + offset, why))
        for run in golden
        if run.step + offset in by_step
    ]


def _placed(pairs: Sequence[tuple[Pass, Pass]]) -> list[RunPair]:
    """Passes of equal places in their generations."""
    why = "the same pass of its generation"
    return [
        RunPair(golden, mine, _step_reason(golden.step, mine.step, why)) for golden, mine in pairs
    ]


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
