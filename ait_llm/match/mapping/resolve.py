"""The pairs of two runs that the lines of a mapping name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ait_llm.match.mapping.fit import BothViews, Fit
from ait_llm.match.mapping.names import Entry, Names, Op
from ait_llm.match.mapping.patterns import Captured, as_text, capture, filled, stars, variables
from ait_llm.match.mapping.relations import Joined, Shape, views_of
from ait_llm.match.mapping.text import Line, Term
from ait_llm.match.model import Match, SideName, Source, Unmatched
from ait_llm.match.views import Plus, View, shape_after
from ait_llm.program.describe import logical_shape

RULE = "saved_mapping"
_SHARED = 0  # calls correspond by number where neither side names one

Key = tuple[tuple[tuple[str, int], ...], tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Hit:
    """What one term of a line means in a run.

    Attributes:
        captured: numbers and stars.
        op: the operation.
        entries: its tensor; all outputs where the line names none.
    """

    captured: Captured
    op: Op
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class _Side:
    """One tensor of a pair, with what the line says is done to it."""

    entry: Entry
    views: tuple[View, ...]
    shape: Shape
    uses: tuple[Source, ...] = ()


class Resolver:
    """Lines carried out on one pair of runs."""

    def __init__(self, golden: Names, mine: Names, fit: Fit | None = None) -> None:
        self._names = golden, mine
        self._fit = fit or Fit(golden.run, mine.run)

    def applies(self, line: Line) -> bool:
        """True if a line speaks of this pair of passes."""
        golden, mine = self._names
        return line.when.holds((golden.model, mine.model), golden.run.step)

    def matches(self, line: Line) -> Iterator[Match | Unmatched]:
        """The pairs of a line; tensors whose partner is not there are unmatched."""
        for tensor in range(line.tensor_alternatives):
            sides = [
                [
                    self._by_key(line, place, alternative, tensor)
                    for alternative in range(line.alternatives)
                ]
                for place in range(2)
            ]
            for alternative in range(line.alternatives):
                golden, mine = (each[alternative] for each in sides)
                for key in dict.fromkeys((*golden, *mine)):
                    if key not in golden or key not in mine:
                        alone: SideName = "golden" if key in golden else "mine"
                        for hit in golden.get(key) or mine[key]:
                            yield from _alone(alone, hit, line)
                        continue
                    for one in golden[key]:
                        for other in mine[key]:
                            parts = [[each.get(key, []) for each in side] for side in sides]
                            yield from self._pair(line, (one, other), parts, alternative, tensor)

    def hits(
        self, term: Term, place: int, alternative: int, tensor: int, *, shared: bool
    ) -> Iterator[Hit]:
        """What a term means on the golden (0) or my (1) side.

        Args:
            shared: calls correspond by number, for neither side names one.
        """
        op_pattern = term.ops[alternative if len(term.ops) > 1 else 0]
        for captured, op in self._names[place].find(op_pattern):
            if term.call is not None:
                of_call = capture(term.call, str(op.call))
                joined = captured.joined(of_call) if of_call is not None else None
                if joined is None:
                    continue
                captured = joined
            elif not shared and op.call:
                continue
            if term.tensors is None:
                yield Hit(captured, op, op.outputs)
                continue
            wanted = term.tensors[tensor if len(term.tensors) > 1 else 0]
            if stars(wanted) or variables(wanted):
                entries: Iterable[tuple[str, Entry]] = op.labels().items()
            else:
                name = filled(wanted, Captured())
                entries = [(name, op.entries[name])] if name in op.entries else []
            for label, entry in entries:
                of_label = capture(wanted, label)
                whole = captured.joined(of_label) if of_label is not None else None
                if whole is not None:
                    yield Hit(whole, op, (entry,))

    def _by_key(
        self, line: Line, place: int, alternative: int, tensor: int
    ) -> dict[Key, list[Hit]]:
        """The hits of the first term of a side, by what they must have in common with the other."""
        sides = line.golden, line.mine
        shared = sides[0][0].call is None and sides[1][0].call is None
        bound = [{n for each in side[0].patterns() for n in variables(each)} for side in sides]
        common = bound[0] & bound[1]
        found: dict[Key, list[Hit]] = defaultdict(list)
        for hit in self.hits(sides[place][0], place, alternative, tensor, shared=shared):
            numbers = tuple(each for each in hit.captured.numbers if each[0] in common)
            key = numbers, hit.captured.stars, hit.op.call if shared else _SHARED
            found[key].append(hit)
        return dict(found)

    def _pair(
        self,
        line: Line,
        hits: tuple[Hit, Hit],
        parts: Sequence[Sequence[Sequence[Hit]]],
        alternative: int,
        tensor: int,
    ) -> Iterator[Match | Unmatched]:
        counts = len(hits[0].entries), len(hits[1].entries)
        if counts[0] != counts[1] or not counts[0]:
            reason = f"{line.place}: golden has {counts[0]} outputs and mine {counts[1]}"
            for side, hit in zip(SIDES, hits, strict=True):
                yield from _refused(side, hit, f"{reason}; name the tensor behind a colon")
            return
        for number in range(counts[0]):
            try:
                both = [
                    self._side(line, place, hit, number, parts[1 - place], alternative, tensor)
                    for place, hit in enumerate(hits)
                ]
                yield self._match(line, both[0], both[1])
            except ValueError as error:
                for side, hit in zip(SIDES, hits, strict=True):
                    yield from _refused(side, hit, f"{line.place}: {error}")

    def _side(
        self,
        line: Line,
        place: int,
        hit: Hit,
        number: int,
        parts: Sequence[Sequence[Hit]],
        alternative: int,
        tensor: int,
    ) -> _Side:
        term, *summands = line.golden if place == 0 else line.mine
        entry = hit.entries[number]
        joined = self._joined(line, 1 - place, parts, number, alternative) if term.joins else None
        shape = shape_of(entry)
        views = self._views(term, shape, joined)
        uses = []
        for each in summands:
            other = self._summand(each, place, hit, tensor)
            theirs = self._views(each, shape_of(other), None)
            views += (Plus(other.source.record, other.source.tensor, theirs),)
            uses.append(other.source)
        return _Side(entry, views, shape_after(shape, views), tuple(uses))

    @staticmethod
    def _views(term: Term, shape: Shape, joined: Joined | None) -> tuple[View, ...]:
        try:
            return views_of(term.words, shape, joined)
        except ValueError:
            if all(word.is_layout for word in term.words):
                return ()  # of a run with another number of tokens
            raise

    def _joined(
        self, line: Line, place: int, parts: Sequence[Sequence[Hit]], number: int, alternative: int
    ) -> Joined:
        """The parts on the other side, in the order of the line."""
        shapes = []
        term = (line.golden if place == 0 else line.mine)[0]
        for name, hits in zip(term.ops, parts, strict=True):
            if not hits:
                raise ValueError(f"its part {as_text(name)!r} is not in the other dump")
            shape = shape_of(hits[0].entries[min(number, len(hits[0].entries) - 1)])
            shapes.append(shape_after(shape, views_of(term.words, shape, None)))
        return Joined(tuple(shapes), alternative)

    def _summand(self, term: Term, place: int, hit: Hit, tensor: int) -> Entry:
        pattern = term.ops[0]
        name = filled(pattern, hit.captured)
        used = Captured(hit.captured.numbers, hit.captured.stars[stars(pattern) :])
        call = hit.op.call if term.call is None else int(filled(term.call, used))
        op = self._names[place].get(name, call)
        if op is None:
            raise ValueError(f"{name!r} is not in the dump")
        if term.tensors is None:
            if len(op.outputs) != 1:
                raise ValueError(f"{name!r} has {len(op.outputs)} outputs; name one behind a colon")
            return op.outputs[0]
        label = filled(term.tensors[tensor if len(term.tensors) > 1 else 0], used)
        if label not in op.entries:
            raise ValueError(f"{name!r} has no tensor {label!r}")
        return op.entries[label]

    def _match(self, line: Line, golden: _Side, mine: _Side) -> Match:
        views = completed(
            self._fit,
            (golden.entry, mine.entry),
            (golden.views, mine.views),
            (golden.shape, mine.shape),
        )
        records: list[tuple[SideName, Source]] = [("golden", each) for each in golden.uses]
        records += [("mine", each) for each in mine.uses]
        return Match(
            golden.entry.viewed(views[0]),
            mine.entry.viewed(views[1]),
            RULE,
            line.confidence,
            f"mapping file: {line.reason}",
            uses=tuple((side, source.record) for side, source in records),
        )


def completed(
    fit: Fit,
    entries: tuple[Entry, Entry],
    views: BothViews,
    shapes: tuple[Shape, Shape],
) -> BothViews:
    """What a line says is done to two tensors, and what their layouts need besides.

    Args:
        fit: knows the layouts of both runs.
        entries: golden and mine.
        views: what the line says; enough where it leads to equal dims.
        shapes: after that.

    Raises:
        ValueError: the shapes do not go together.
    """
    if any(views) and _squeezed(shapes[0]) == _squeezed(shapes[1]):
        return views
    whole = entries[0].source.tensor, entries[1].source.tensor
    fitted = fit.views(*shapes, None if any(views) else whole)
    if isinstance(fitted, str):
        raise ValueError(fitted)
    return views[0] + fitted[0], views[1] + fitted[1]


SIDES: tuple[SideName, SideName] = ("golden", "mine")


def shape_of(entry: Entry) -> Shape:
    """Dims of a tensor as row-major values."""
    return logical_shape(entry.source.tensor)


def _squeezed(shape: Shape) -> Shape:
    return tuple(dim for dim in shape if dim != 1)


def _alone(side: SideName, hit: Hit, line: Line) -> Iterator[Unmatched]:
    yield from _refused(side, hit, f"{line.place}: its partner is not in the other dump")


def _refused(side: SideName, hit: Hit, reason: str) -> Iterator[Unmatched]:
    for entry in hit.entries:
        yield Unmatched(side, entry.source, reason)
