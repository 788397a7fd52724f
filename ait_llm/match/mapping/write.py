"""Pairs that were found as a file of patterns."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ait_llm.core.new_files import temporary_beside
from ait_llm.errors import FormatError
from ait_llm.match.mapping.drafts import Draft, Instance, PassPair, Proofs, Proven
from ait_llm.match.mapping.fold import folded
from ait_llm.match.mapping.generalise import generalised
from ait_llm.match.mapping.names import Names
from ait_llm.match.mapping.patterns import escaped
from ait_llm.match.mapping.text import ALLOW_MISSING, When
from ait_llm.match.mapping.words import Speller
from ait_llm.match.model import Match
from ait_llm.program.one_pass import Pass

_HEAD = """\
# Which tensor of golden (left) answers which of mine (right); edit it and give it to -mf.
# {i} is a number that has one value throughout a line, = is the same name as on the left,
# :name a tensor, :* every tensor of one name on both sides, none of these the outputs,
# [columns] joins parts in their order, ~0.9 is the confidence. See docs/matching.md.
# A line may name what a dump does not have. To have every name checked, remove the next line.
"""


def write_mapping(path: Path, found: Iterable[tuple[Pass, Pass, Iterable[Match]]]) -> None:
    """Write matches as a file for ``--op-mapping-file``.

    What holds for all layers is one line. Reading the file gives the same pairs; pairs that no
    line can say, such as weights with a scale for each channel, are left to the matchers.

    Args:
        path: the file; it appears complete or not at all.
        found: pairs of runs with their matches.

    Raises:
        FormatError: it cannot be written.
    """
    passes = [
        PassPair(Names(golden), Names(mine), list(matches)) for golden, mine, matches in found
    ]
    text = f"{_HEAD}{ALLOW_MISSING}\n" + "".join(f"{line}\n" for line in _lines(passes))
    _write(path, text)


def _lines(passes: Sequence[PassPair]) -> Iterator[str]:
    speller = Speller()
    drafts: dict[Instance, Draft] = {}
    for number, each in enumerate(passes):
        for place, match in enumerate(each.matches):
            sides = speller.sides(each, match)
            if sides is not None:
                drafts[number, place] = Draft(*sides)
    proofs = Proofs(passes)
    headed = When()
    for when, stage, instances in _stages(passes, drafts):
        prove = partial(proofs.prove, when=when)
        wanted: dict[str, dict[Draft, None]] = defaultdict(dict)
        for instance in instances:
            wanted[proofs.kind(instance)][stage(drafts[instance])] = None
        lines = [
            line
            for several in wanted.values()
            for line in folded(generalised(list(several), prove), prove)
        ]
        if lines and when != headed:
            yield ""
            yield _heading(when)
            headed = when
        lines.sort(key=lambda line: min(line.covers))
        yield from _with_remarks(lines, passes)
        for instance in {each for line in lines for each in line.covers}:
            drafts.pop(instance, None)
    left = sum(len(each.matches) for each in passes) - proofs.count
    if left:
        yield f"# {left} pairs are left to the matchers: no line can say what is done to them."


Stage = tuple[When, Callable[[Draft], Draft], Sequence[Instance]]


def _stages(passes: Sequence[PassPair], left: Mapping[Instance, Draft]) -> Iterator[Stage]:
    """Where to say which of the pairs that are left: for all passes, for some, for one.

    Args:
        passes: all of them.
        left: shrinks from stage to stage.
    """
    moments = [_moment(each) for each in passes]
    for calls in (_of_all_calls, _as_it_is):
        yield When(), calls, list(left)
    for models in dict.fromkeys(models for models, _ in moments if any(models)):
        for calls in (_of_all_calls, _as_it_is):
            yield When(models=models), calls, [n for n in left if moments[n[0]][0] == models]
    for calls in (_of_all_calls, _as_it_is):
        for steps in _steps_of(left, moments):
            yield When(steps=steps), calls, [n for n in left if moments[n[0]][1] in steps]
    for step in dict.fromkeys(step for _, step in moments):
        of_step = [n for n in left if moments[n[0]][1] == step]
        yield When(steps=frozenset([step])), _as_it_is, of_step


def _steps_of(
    left: Mapping[Instance, Draft], moments: Sequence[tuple[tuple[str, str], int]]
) -> Iterable[frozenset[int]]:
    """Sets of steps that have the same pairs."""
    steps: dict[Draft, set[int]] = defaultdict(set)
    for (number, _), draft in left.items():
        steps[draft].add(moments[number][1])
    return dict.fromkeys(frozenset(each) for each in steps.values())


def _moment(each: PassPair) -> tuple[tuple[str, str], int]:
    return (each.golden.model, each.mine.model), each.golden.run.step


def _as_it_is(draft: Draft) -> Draft:
    return draft


def _of_all_calls(draft: Draft) -> Draft:
    """The line for all calls, if it is about calls of one number."""
    golden, mine = draft.golden, draft.mine
    if golden.call != mine.call or "@" in golden.rest + mine.rest:
        return draft
    return Draft(replace(golden, call=""), replace(mine, call=""))


def _heading(when: When) -> str:
    if when.models is not None:
        golden, mine = (escaped(name) or "-" for name in when.models)
        return f"when models {golden} -> {mine}"
    return f"when steps {','.join(map(str, sorted(when.steps or ())))}"


def _with_remarks(lines: Sequence[Proven], passes: Sequence[PassPair]) -> Iterator[str]:
    """Each line, with what made its pairs where that is not what made those before."""
    before = ""
    for line in lines:
        matches = [passes[number].matches[place] for number, place in sorted(line.covers)]
        rules = ", ".join(sorted({match.rule for match in matches}))
        if rules != before:
            yield f"# found by {rules}"
            before = rules
        least = min(match.confidence for match in matches)
        yield f"{line.draft} ~{least:g}" if least < 1 else str(line.draft)


def _write(path: Path, text: str) -> None:
    try:
        descriptor, temporary = temporary_beside(path)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FormatError(path, f"cannot be written: {error.strerror}") from None
