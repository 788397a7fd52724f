"""Lines that differ in one name as one line: ``{q,k,v}_proj``, ``:*``, ``[columns]``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ait_llm.match.mapping.drafts import Draft, DraftSide, Instance, Proven

_WIDTH = 110  # of a line that is still read at one look
_MOST = 8  # alternatives
_STRETCH = re.compile(r"(.*)\[(columns|rows) (\d+):(\d+)\]", re.DOTALL)

Prove = Callable[[Draft], Proven | None]


def folded(lines: Iterable[Proven], prove: Prove) -> list[Proven]:
    """Fewer lines that mean the same pairs, in the order of the first ones."""
    found = list(lines)
    for fold in (_joins, _tensors, _tensor_lists, _names):
        found = _replaced(found, fold(found), prove)
    return found


def _replaced(lines: Sequence[Proven], candidates: Iterable[Draft], prove: Prove) -> list[Proven]:
    """The lines with each candidate in the place of the lines that it makes superfluous."""
    left: dict[int, Proven] = dict(enumerate(lines))
    of_instance: dict[Instance, set[int]] = defaultdict(set)
    for place, line in left.items():
        for instance in line.covers:
            of_instance[instance].add(place)
    for draft in candidates:
        proven = prove(draft)
        if proven is None:
            continue
        touched = {place for instance in proven.covers for place in of_instance[instance]}
        saved = [
            place for place in touched if place in left and left[place].covers <= proven.covers
        ]
        if len(saved) < 2 and not (saved and not draft.golden.tensor and not draft.mine.tensor):
            continue
        for place in saved:
            del left[place]
        place = min(saved)
        left[place] = proven
        for instance in proven.covers:
            of_instance[instance].add(place)
    return [left[place] for place in sorted(left)]


def _joins(lines: Sequence[Proven]) -> Iterator[Draft]:
    """Parts one behind the other of one tensor: ``{q,k,v}_proj -> qkv[columns]``."""
    for number in range(2):
        groups: dict[tuple[DraftSide, str, DraftSide], list[tuple[int, int, Draft]]]
        groups = defaultdict(list)
        for line in lines:
            whole, part = _both(line.draft, number)
            match = _STRETCH.fullmatch(whole.words)
            if match is not None and not whole.rest and not part.rest:
                key = replace(whole, words=match[1]), match[2], replace(part, op="")
                groups[key].append((int(match[3]), int(match[4]), line.draft))
        for (whole, axis, part), parts in groups.items():
            for row in _rows_of(parts):
                names = [_both(draft, number)[1].op for draft in row]
                op = _alternatives(names) if len(row) > 1 else None
                if op is not None:
                    joined = replace(whole, words=f"{whole.words}[{axis}]")
                    yield _line(joined, replace(part, op=op), number)


def _rows_of(parts: Sequence[tuple[int, int, Draft]]) -> Iterator[list[Draft]]:
    """Parts that begin at 0 and follow one another without a gap."""
    ordered = sorted(parts, key=lambda each: each[:2])
    row: list[Draft] = []
    end = 0
    for start, stop, draft in ordered:
        if start == end:
            row.append(draft)
            end = stop
    yield row


def _tensors(lines: Sequence[Proven]) -> Iterator[Draft]:
    """All tensors of two operations, or their outputs."""
    groups: dict[Draft, list[Draft]] = defaultdict(list)
    for line in lines:
        golden, mine = line.draft.golden, line.draft.mine
        if not golden.rest and not mine.rest:
            bare = Draft(replace(golden, tensor=""), replace(mine, tensor=""))
            groups[bare].append(line.draft)
    for bare in groups:
        golden, mine = bare.golden, bare.mine
        if not golden.words and not mine.words:
            yield Draft(replace(golden, tensor="*"), replace(mine, tensor="*"))
        yield bare


def _tensor_lists(lines: Sequence[Proven]) -> Iterator[Draft]:
    """Some tensors of two operations: ``:{input_0,output}``."""
    groups: dict[Draft, list[Draft]] = defaultdict(list)
    for line in lines:
        golden, mine = line.draft.golden, line.draft.mine
        if golden.tensor and mine.tensor and not golden.rest and not mine.rest:
            bare = Draft(replace(golden, tensor=""), replace(mine, tensor=""))
            groups[bare].append(line.draft)
    for bare, drafts in groups.items():
        golden, mine = bare.golden, bare.mine
        for some in _chunks(drafts):
            tensors = [_list([each.golden.tensor for each in some])]
            tensors.append(_list([each.mine.tensor for each in some]))
            if None not in tensors:
                first, second = (text or "" for text in tensors)
                yield Draft(replace(golden, tensor=first), replace(mine, tensor=second))


def _names(lines: Sequence[Proven]) -> Iterator[Draft]:
    """Operations next to one another: ``{gate,up,down}_proj``."""
    groups: dict[Draft, list[Draft]] = defaultdict(list)
    for line in lines:
        sides = line.draft.golden, line.draft.mine
        if any(side.rest or "[columns]" in side.words or "[rows]" in side.words for side in sides):
            continue
        if any("," in side.tensor or "," in side.op for side in sides):
            continue
        bare = Draft(*(replace(side, op=_parent(side.op)) for side in sides))
        groups[bare].append(line.draft)
    for bare, drafts in groups.items():
        golden, mine = bare.golden, bare.mine
        for some in _chunks(drafts):
            ops = [_alternatives([each.golden.op for each in some])]
            ops.append(_alternatives([each.mine.op for each in some]))
            if None not in ops and _reads_well(some):
                first, second = (text or "" for text in ops)
                yield Draft(replace(golden, op=first), replace(mine, op=second))


def _reads_well(drafts: Sequence[Draft]) -> bool:
    """True if one side is a single name, or both are names of one module that occur once each."""
    sides = [[each.golden.op for each in drafts], [each.mine.op for each in drafts]]
    counts = [len(set(names)) for names in sides]
    if min(counts) == 1:
        return True
    return counts[0] == counts[1] == len(drafts) and all("." in names[-1] for names in sides)


def _parent(op: str) -> str:
    """What lines must have in common to be read as one: the module around."""
    return op.rpartition(".")[0]


def _chunks(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """Lines to put together: all if they are few, else some at a time."""
    for start in range(0, len(drafts), _MOST):
        some = drafts[start : start + _MOST]
        while len(some) > 1:
            yield some
            some = some[:-1]


def _list(texts: Sequence[str]) -> str | None:
    if len(set(texts)) == 1:
        return texts[0]
    if any(each in text for text in texts for each in "{},*"):
        return None
    return "{" + ",".join(texts) + "}"


def _alternatives(names: Sequence[str]) -> str | None:
    """``a.q_proj`` and ``a.k_proj`` as ``a.{q,k}_proj``; None if that cannot be written."""
    if len(set(names)) == 1:
        return names[0]
    head = _common(names)
    head = head[: _boundary(head)]
    tails = [name[len(head) :] for name in names]
    tail = _common([each[::-1] for each in tails])[::-1]
    is_dotted = "." in head  # the last numbers of an ATB place are no word
    tail = tail[len(tail) - _boundary(tail[::-1]) :] if is_dotted else ""
    middles = [each[: len(each) - len(tail)] for each in tails]
    if any(each in middle for middle in middles for each in "{},*"):
        return None
    text = head + "{" + ",".join(middles) + "}" + tail
    return text if len(text) <= _WIDTH else None


def _common(texts: Sequence[str]) -> str:
    """What texts begin with in common."""
    first, last = min(texts), max(texts)
    length = next(
        (n for n, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1),
        min(len(first), len(last)),
    )
    return first[:length]


def _boundary(text: str) -> int:
    """Length of the longest beginning of a text that ends where a word ends."""
    for end in range(len(text), 0, -1):
        if text[end - 1] in "._" and text[:end].count("{") == text[:end].count("}"):
            return end
    return 0


def _both(draft: Draft, number: int) -> tuple[DraftSide, DraftSide]:
    """The side with that number and the other one."""
    return (draft.golden, draft.mine) if number == 0 else (draft.mine, draft.golden)


def _line(one: DraftSide, other: DraftSide, number: int) -> Draft:
    return Draft(one, other) if number == 0 else Draft(other, one)
