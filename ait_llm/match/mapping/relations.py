"""The words in brackets: what is done to a tensor so that it answers its partner.

Words come in the order in which they are carried out: ``[transposed][columns 0:64]``. ``columns``,
``rows`` and ``interleaved`` without numbers mean that the parts on the other side of the line, in
their order, are joined in this tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ait_llm.match.value_views import Dequantise, FirstUse, Hidden, Shift, Times
from ait_llm.match.views import Part, Reorder, Repeat, Reshape, Rows, View, shape_after

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Which of the parts of a joined tensor is meant.

    Attributes:
        shapes: of all parts, in order, after their own relations.
        place: of the one that is meant.
    """

    shapes: tuple[Shape, ...]
    place: int

    def stretch(self, axis: int, length: int) -> tuple[int, int]:
        """Start and stop on an axis of the joined tensor.

        Raises:
            ValueError: all parts together are not ``length`` long.
        """
        lengths = [shape[axis] for shape in self.shapes]
        if sum(lengths) != length:
            raise ValueError(f"the parts have {' + '.join(map(str, lengths))}")
        start = sum(lengths[: self.place])
        return start, start + lengths[self.place]


@dataclass(frozen=True, slots=True)
class Word:
    """One pair of brackets.

    Attributes:
        text: as written, without the brackets, with single blanks.
        view: what an older file says in its own way; None for a word.
    """

    text: str
    view: View | None = None

    @property
    def joins(self) -> bool:
        """True if it needs the parts on the other side."""
        return (self.view is None and self.text.split()[-1] in ("columns", "rows")) or self._woven

    @property
    def _woven(self) -> bool:
        return self.view is None and self.text.startswith("interleaved ")

    @property
    def is_layout(self) -> bool:
        """True if it may be of another number of tokens; it is then looked for anew."""
        return self.view is not None or self.text.split()[0] in _LAYOUT

    def views(self, shape: Shape, joined: Joined | None) -> tuple[View, ...]:
        """What it does to a tensor of a shape.

        Raises:
            ValueError, IndexError: it does not fit the shape.
        """
        if self.view is not None:
            return (self.view,)
        name, *numbers = self.text.split()
        if self.joins and joined is None:
            raise ValueError("there are no parts on the other side")
        return _WORDS[name].views(numbers, shape, joined or Joined((), 0))


def views_of(words: Sequence[Word], shape: Shape, joined: Joined | None) -> tuple[View, ...]:
    """What words do to a tensor of a shape.

    Raises:
        ValueError: they do not go together; the message says why.
    """
    views: tuple[View, ...] = ()
    for word in words:
        try:
            now = word.views(shape, joined)
            after = shape_after(shape, now)
        except (IndexError, ValueError) as error:
            text = f"[{word.text}] does not fit shape {list(shape)}"
            detail = "" if "does not fit shape" in str(error) else f": {error}"
            raise ValueError(text + detail) from None
        views, shape = views + now, after
    return views


def read_word(text: str) -> Word:
    """A word with its numbers, without the brackets.

    Raises:
        ValueError: there is none such; the message says which there are.
    """
    text = " ".join(text.split())
    kind = _WORDS.get(text.split(" ")[0])
    if kind is None:
        raise ValueError(f"[{text}] is no relation; there are {', '.join(_WORDS)}")
    if re.fullmatch(kind.syntax, text) is None:
        raise ValueError(f"[{text}] is not written like [{kind.example}]")
    return Word(text)


def _columns(numbers: Sequence[str], shape: Shape, joined: Joined) -> tuple[View, ...]:
    return (_stretch(numbers, shape, joined, len(shape) - 1),)


def _rows(numbers: Sequence[str], shape: Shape, joined: Joined) -> tuple[View, ...]:
    return (_stretch(numbers, shape, joined, 0),)


def _stretch(numbers: Sequence[str], shape: Shape, joined: Joined, axis: int) -> Part:
    if numbers:
        return Part(axis, *_two(numbers[0]))
    return Part(axis, *joined.stretch(-1 if axis else 0, shape[axis]))


def _interleaved(numbers: Sequence[str], shape: Shape, joined: Joined) -> tuple[View, ...]:
    heads = int(numbers[0].partition("=")[2])
    start, stop = joined.stretch(-1, shape[-1])
    lead, width = shape[:-1], shape[-1]
    if any(each % heads for each in (start, stop, width)):
        raise ValueError(f"the parts cannot be cut into {heads} heads")
    return (
        Reshape((*lead, heads, width // heads)),
        Part(len(shape), start // heads, stop // heads),
        Reshape((*lead, stop - start)),
    )


def _rotary(numbers: Sequence[str], shape: Shape, joined: Joined) -> tuple[View, ...]:
    heads = int(numbers[1].partition("=")[2]) if numbers[1:] else 1
    lead, width = shape[:-1], shape[-1]
    if width % (2 * heads):
        raise ValueError(f"{width} columns are not pairs in {heads} heads")
    half = width // heads // 2
    cut = (heads, 2, half) if numbers[0] == "halves" else (heads, half, 2)
    axes = (*range(len(shape)), len(shape) + 1, len(shape))
    return Reshape((*lead, *cut)), Reorder(axes), Reshape(shape)


def _transposed(numbers: Sequence[str], shape: Shape, joined: Joined) -> tuple[View, ...]:
    if len(shape) < 2:
        raise ValueError("it has no two axes")
    return (Reorder((*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)),)


def _last(numbers: Sequence[str], shape: Shape, joined: Joined) -> tuple[View, ...]:
    if len(shape) < 2:
        raise ValueError("it has no axis of positions")
    return (Part(len(shape) - 2, shape[-2] - 1, shape[-2]),)


def _pick(numbers: Sequence[str], shape: Shape, joined: Joined) -> tuple[View, ...]:
    axis, length = int(numbers[0]), shape[int(numbers[0])]
    if any(int(each) > length for each in re.findall(r"\d+", numbers[1])):
        raise ValueError(f"axis {axis} has {length} elements")
    return (Rows(axis, _many(numbers[1])),)


def _two(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last)


def _many(text: str) -> tuple[int, ...]:
    """``0:7,9`` as 0 to 6 and 9."""
    found: list[int] = []
    for each in text.split(",") if text != "none" else ():
        found += range(*_two(each)) if ":" in each else [int(each)]
    return tuple(found)


def _reals(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


@dataclass(frozen=True, slots=True)
class _Kind:
    """A relation: how it is written, an example, and its views."""

    syntax: str
    example: str
    views: Callable[[Sequence[str], Shape, Joined], tuple[View, ...]]


_N = r"\d{1,9}"
_H = r"heads=[1-9]\d{0,5}"
_R = r"[-+.\dinfae]+"
_WORDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "columns": _Kind(f"columns( {_N}:{_N})?", "columns 0:64", _columns),
        "rows": _Kind(f"rows( {_N}:{_N})?", "rows 0:64", _rows),
        "interleaved": _Kind(
            "interleaved heads=[1-9][0-9]{0,5}", "interleaved heads=8", _interleaved
        ),
        "rotary": _Kind(f"rotary (halves|pairs)( {_H})?", "rotary halves heads=8", _rotary),
        "transposed": _Kind("transposed", "transposed", _transposed),
        "last": _Kind("last", "last", _last),
        "part": _Kind(
            f"part {_N} {_N}:{_N}", "part 1 0:64", lambda n, *_: (Part(int(n[0]), *_two(n[1])),)
        ),
        "pick": _Kind(
            f"pick {_N} (none|({_N}(:{_N})?,?)+)",
            "pick 0 0:7,9",
            _pick,
        ),
        "shape": _Kind(
            f"shape (none|{_N}(x{_N})*)",
            "shape 14x64",
            lambda n, *_: (Reshape(tuple(int(d) for d in n[0].split("x") if d != "none")),),
        ),
        "axes": _Kind(
            f"axes ({_N},?)+", "axes 0,2,1", lambda n, *_: (Reorder(tuple(_many(n[0]))),)
        ),
        "repeat": _Kind(
            f"repeat {_N} {_N}", "repeat 0 4", lambda n, *_: (Repeat(int(n[0]), int(n[1])),)
        ),
        "shift": _Kind(
            f"shift {_N} {_N} -?{_N}",
            "shift 0 4 7",
            lambda n, *_: (Shift(int(n[0]), int(n[1]), int(n[2])),),
        ),
        "first-use": _Kind("first-use", "first-use", lambda *_: (FirstUse(),)),
        "hides": _Kind(f"hides {_R}", "hides -65504.0", lambda n, *_: (Hidden(float(n[0])),)),
        "times": _Kind(f"times {_R}", "times 0.5", lambda n, *_: (Times(float(n[0])),)),
        "dequantised": _Kind(
            f"dequantised {_R}(,{_R})* {_R}(,{_R})* -{_N}",
            "dequantised 0.5 0.0 -1",
            lambda n, *_: (Dequantise(_reals(n[0]), _reals(n[1]), int(n[2])),),
        ),
    }
)
# What depends on the number of tokens of a run.
_LAYOUT = frozenset({"part", "pick", "shape", "axes", "repeat", "shift"})
