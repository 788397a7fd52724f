"""Reads from a dump which tokens its run chose.

They are what its passes read one after the other, whatever chose them. What it chose last was read
by no pass; its last logits tell that, if it took the largest ones before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ait_llm.dump.golden_tokens import GoldenBeams, GoldenRequest, GoldenTokens
from ait_llm.dumps import Dump, Process, open_dump
from ait_llm.errors import FormatError
from ait_llm.program.logits import largest_logit
from ait_llm.program.passes import passes_of
from ait_llm.program.proposals import needs_places, proposed_requests, with_places
from ait_llm.program.readings import Reading, generations, is_greedy, readings


def read_golden_tokens(path: Path) -> GoldenTokens:
    """The tokens of a dump of modules or operators of PyTorch.

    Raises:
        FormatError: there is no dump, or it holds no generation.
    """
    dump = open_dump(path)
    found: dict[int, tuple[GoldenRequest, ...]] = {}
    beams: dict[int, tuple[GoldenBeams, ...]] = {}
    for number, process in enumerate(dump.processes):
        searches = tuple(_searches(path, process))
        if searches:
            beams[_rank(process, number)] = searches
        requests = tuple(_requests(dump, process))
        if requests:
            found[_rank(process, number)] = requests
    if not found and not beams:
        raise FormatError(
            path,
            "holds no tokens that a run could follow: ids that the model or its embedding reads, "
            "in more than one step",
            "Capture golden with --type torch -er all",
        )
    return GoldenTokens(str(path), found, beams)


def _requests(dump: Dump, process: Process) -> Iterator[GoldenRequest]:
    if dump.traits.compiled or dump.traits.counted:
        return
    searched = {line.get("step") for line in _beam_lines(process)}
    every = readings(passes_of(dump, process))
    if needs_places(every):
        for number, one in enumerate(proposed_requests(with_places(every))):
            if one.chosen:
                yield GoldenRequest(number, one.prompt, one.chosen)
        return
    for number, read in enumerate(generations(every)):
        if not searched.isdisjoint(each.run.step for each in read):
            continue  # rows that went on from each other
        for row, prompt in enumerate(_prompts(read)):
            chosen = tuple(_chosen(read, row))
            if chosen:
                yield GoldenRequest(number, prompt, chosen)


def _searches(path: Path, process: Process) -> Iterator[GoldenBeams]:
    """The beam searches of a process.

    Raises:
        FormatError: a line of them is damaged.
    """
    found: list[tuple[int, Any, list[Any]]] = []
    try:
        for line in _beam_lines(process):
            if "prompts" in line:
                found.append((int(line["width"]), line["prompts"], []))
            elif found:
                found[-1][2].append(line["kept"])
        for width, prompts, kept in found:
            yield GoldenBeams.checked(width, prompts, kept)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(path, f"a line about beams is damaged ({error})") from error


def _beam_lines(process: Process) -> Sequence[Mapping[str, Any]]:
    return () if process.ledger is None else process.ledger.beams


def _prompts(read: Sequence[Reading]) -> list[tuple[int, ...]]:
    """The prompts of a generation; none where requests are packed and cannot be told apart."""
    first = read[0].ids
    prompts = [] if first is None else first.prompts()
    if first is not None and first.ids.ndim == 1:
        told_apart = all(len(each.newest) == len(prompts) for each in read[1:])
        return prompts if told_apart else []
    return prompts


def _chosen(read: Sequence[Reading], row: int) -> Iterator[int]:
    """What followed the prompt, up to the first step that was not captured."""
    before = read[0]
    for each in read[1:]:
        if each.run.step != before.run.step + 1 or row >= len(each.newest):
            return
        yield each.newest[row]
        before = each
    count = len(before.newest)
    if is_greedy(read, row) and (token := largest_logit(before.run, row, count)) is not None:
        yield token


def _rank(process: Process, number: int) -> int:
    """The rank that its launcher gave it; its place where there is none."""
    environment = process.header.get("environment")
    rank = environment.get("RANK") if isinstance(environment, Mapping) else None
    return int(rank) if isinstance(rank, str) and rank.isdecimal() and rank.isascii() else number
