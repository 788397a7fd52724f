"""How a pair that was found is written: the fewest words with which reading finds it again."""

from __future__ import annotations

from dataclasses import replace

from ait_llm.errors import AitError
from ait_llm.match.mapping.drafts import DraftSide, PassPair, same_effect
from ait_llm.match.mapping.names import Entry, Names, Op
from ait_llm.match.mapping.patterns import escaped
from ait_llm.match.mapping.relations import Shape, read_word, views_of
from ait_llm.match.mapping.resolve import completed, shape_of
from ait_llm.match.mapping.spelling import words_for
from ait_llm.match.model import Match, Source
from ait_llm.match.views import Part, Plus, View, shape_after

# Factors of a quantised tensor, one for each channel, are too many for a line that people read.
_MAX_WORDS = 400


class Speller:
    """Words for the views of matches; most matches of a model have those of another layer."""

    def __init__(self) -> None:
        self._known: dict[object, tuple[str, str] | None] = {}

    def sides(self, each: PassPair, match: Match) -> tuple[DraftSide, DraftSide] | None:
        """Both sides of the line for a match alone; None where a file cannot say it."""
        try:
            one = each.golden.by_key[match.golden.record.order, match.golden.record.name]
            other = each.mine.by_key[match.mine.record.order, match.mine.record.name]
            words = self._words(each, match, (one[1], other[1]))
            if words is None:
                return None
            rests = [
                _rest(names, source, op.call)
                for names, source, op in (
                    (each.golden, match.golden, one[0]),
                    (each.mine, match.mine, other[0]),
                )
            ]
        except (AitError, KeyError, ValueError):
            return None
        return _side(*one, words[0], rests[0]), _side(*other, words[1], rests[1])

    def _words(
        self, each: PassPair, match: Match, entries: tuple[Entry, Entry]
    ) -> tuple[str, str] | None:
        shapes = shape_of(entries[0]), shape_of(entries[1])
        views = match.golden.views, match.mine.views
        formats = match.golden.tensor.format, match.mine.tensor.format
        key = id(each), shapes, views, formats
        if key not in self._known:
            found = _candidates(views, shapes)
            self._known[key] = next(
                (words for words in found if _is_right(each, match, entries, shapes, words)), None
            )
        return self._known[key]


def _candidates(
    views: tuple[tuple[View, ...], tuple[View, ...]], shapes: tuple[Shape, Shape]
) -> list[tuple[str, str]]:
    """Words from the shortest to the exact ones."""
    plain = [tuple(v for v in each if not isinstance(v, Plus)) for each in views]
    found = [("", "")]
    parts = [_columns(each, shape) for each, shape in zip(plain, shapes, strict=True)]
    if any(parts):
        found.append((parts[0], parts[1]))
        found += [(parts[0], ""), ("", parts[1])]
    exact = [words_for(each, shape) for each, shape in zip(plain, shapes, strict=True)]
    found.append((exact[0], exact[1]))
    return [words for words in found if max(map(len, words)) <= _MAX_WORDS]


def _columns(views: tuple[View, ...], shape: Shape) -> str:
    """The one stretch that is cut out, as if it were cut out first."""
    cut = [view for view in views if isinstance(view, Part)]
    if len(cut) != 1 or not shape:
        return ""
    (part,) = cut
    before = shape_after(shape, views[: views.index(part)])
    if part.axis == len(before) - 1 and before[-1] == shape[-1]:
        return words_for([Part(len(shape) - 1, part.start, part.stop)], shape)
    return words_for([part], shape) if before == shape else ""


def _is_right(
    each: PassPair,
    match: Match,
    entries: tuple[Entry, Entry],
    shapes: tuple[Shape, Shape],
    words: tuple[str, str],
) -> bool:
    """True if reading these words gives the views of the match."""
    try:
        views, after = [], []
        for text, shape, source in zip(words, shapes, (match.golden, match.mine), strict=True):
            own = views_of([read_word(w) for w in text[1:-1].split("][") if w], shape, None)
            sums = tuple(view for view in source.views if isinstance(view, Plus))
            views.append(own + sums)
            after.append(shape_after(shape, views[-1]))
        both = completed(each.fit, entries, (views[0], views[1]), (after[0], after[1]))
    except (AitError, ValueError):
        return False
    return same_effect(match.golden, both[0]) and same_effect(match.mine, both[1])


def _rest(names: Names, source: Source, call: int) -> str:
    """The further summands of a side, of the call of the first one where none is told."""
    text = ""
    for view in source.views:
        if isinstance(view, Plus):
            op, entry = names.by_key[view.record.order, view.record.name]
            side = _side(op, entry, words_for(view.views, view.tensor.shape))
            text += f" + {replace(side, call='') if op.call == call else side}"
    return text


def _side(op: Op, entry: Entry, words: str, rest: str = "") -> DraftSide:
    return DraftSide(escaped(op.name), str(op.call), escaped(entry.label), words, rest)
