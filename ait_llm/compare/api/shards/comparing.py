"""One call on all ranks of both sides to rows of the table."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ait_llm.compare.api.columns import Mode
from ait_llm.compare.api.item import NO_FILE, Item
from ait_llm.compare.api.measuring import value_file
from ait_llm.compare.api.real_data import metric_cells
from ait_llm.compare.api.shards.blame import wrong_parts
from ait_llm.compare.api.shards.by_statistics import choose_by_statistics
from ait_llm.compare.api.shards.inferring import Inferred, Layouts, infer, layouts_of_shapes
from ait_llm.compare.api.shards.judging import judge_pieces
from ait_llm.compare.api.shards.layout import Layout, ranges_of
from ait_llm.compare.api.shards.records import Ranks
from ait_llm.compare.api.shards.row import UNKNOWN, ShardRow
from ait_llm.compare.api.shards.saved import SavedLayouts
from ait_llm.compare.api.statistics_rules import Cell
from ait_llm.compare.api.without_rules import function_of
from ait_llm.compare.values import open_file
from ait_llm.core import DType
from ait_llm.core.comparison import Verdict
from ait_llm.dumps.api_values import dtype_named
from ait_llm.errors import AitError
from ait_llm.formats.elements import Array
from ait_llm.judge import tolerance_for

_NUMBERS = re.compile(r"\d+")
_TABLE = ".input.1"  # of an embedding, whose indices are .input.0
Items = Sequence[Item]


@dataclass(slots=True)
class Comparer:
    """Compares calls; remembers the layouts that values have confirmed.

    Attributes:
        few, many: the sides.
        mode: what both offer.
        few_is_golden: which of them is trusted.
        given: layouts from a file.
        found: layouts of this comparison by the name of the tensor.
    """

    few: Ranks
    many: Ranks
    mode: Mode
    few_is_golden: bool
    given: SavedLayouts
    found: dict[str, Layouts] = field(default_factory=dict)
    _confirmed: dict[object, Layouts] = field(default_factory=dict)

    def rows(self, few_name: str, many_name: str) -> Iterator[ShardRow]:
        """Rows of one call, in the order of the side with more ranks.

        Raises:
            FormatError: a file has changed meanwhile.
        """
        few, many = self.few.items(few_name), self.many.items(many_name)
        call = _Call(self, many_name, few, many)
        names = dict.fromkeys(name for items in (*many, *few) for name in items)
        for name in names:
            yield call.row(name)

    def alone(self, name: str, *, few: bool) -> Iterator[ShardRow]:
        """Rows of a call that only one side has."""
        ranks = self.few if few else self.many
        side = "golden" if few is self.few_is_golden else "mine"
        found = ranks.items(name)
        for within in dict.fromkeys(each for items in found for each in items):
            items = [each[within] for each in found if within in each]
            yield self.make(
                items if few else [],
                [] if few else items,
                Verdict.SKIPPED,
                f"only {side} makes this call",
            )

    def make(
        self, few: Items, many: Items, verdict: Verdict, reason: str = "", **more: object
    ) -> ShardRow:
        """A row of what was found."""
        golden, mine = (few, many) if self.few_is_golden else (many, few)
        return ShardRow(
            mine[0] if mine else None,
            golden[0] if golden else None,
            _shapes(mine),
            _shapes(golden),
            verdict,
            reason,
            **more,  # type: ignore[arg-type]  # the caller names fields of the row
        )

    def remember(self, key: object, name: str, layouts: Layouts, *, confirmed: bool) -> None:
        """Keep what was found, for calls whose values are wrong everywhere, and for the file."""
        self.found[name] = layouts
        if confirmed:
            self._confirmed.setdefault(key, layouts)

    def remembered(self, key: object) -> Layouts | None:
        """The layout of the same tensor in another call."""
        return self._confirmed.get(key)


class _Call:
    """One call on all ranks."""

    def __init__(
        self,
        comparer: Comparer,
        name: str,
        few: list[dict[str, Item]],
        many: list[dict[str, Item]],
    ) -> None:
        self._comparer = comparer
        self._name = name
        self._function = function_of(name)
        self._few, self._many = few, many
        self._wrong_inputs: set[int] = set()
        self._table: Layout | None = None
        if self._function == "embedding" and all(_TABLE in items for items in (*few, *many)):
            self._table = self._rows_of_table()

    def row(self, within: str) -> ShardRow:
        """The row of one tensor or scalar."""
        make = self._comparer.make
        few, many = ([each[within] for each in side if within in each] for side in self._sides)
        for items, ranks, ours in ((few, self._few, True), (many, self._many, False)):
            if not items:
                side = "golden" if ours is not self._comparer.few_is_golden else "mine"
                return make(few, many, Verdict.SKIPPED, f"only {side} has it")
            if len(items) != len(ranks):
                without = [str(rank) for rank, each in enumerate(ranks) if within not in each]
                reason = f"rank {', '.join(without)} of {self._side(ours)} does not have it"
                return make(few, many, Verdict.SKIPPED, reason)
        if not all(item.is_tensor for item in (*few, *many)):
            return self._scalars(few, many)
        return self._tensors(within, few, many)

    @property
    def _sides(self) -> tuple[list[dict[str, Item]], list[dict[str, Item]]]:
        return self._few, self._many

    def _side(self, few: bool) -> str:
        return "golden" if few is self._comparer.few_is_golden else "mine"

    def _scalars(self, few: Items, many: Items) -> ShardRow:
        """Sizes may be cut like tensors; everything else must be the same on all ranks."""
        make = self._comparer.make
        ours, theirs = ([str(item.statistics[0]) for item in side] for side in (few, many))
        shapes = {item.shape for item in (*few, *many)}
        if len({*ours, *theirs}) == 1 and len(shapes) == 1:
            return make(few, many, Verdict.PASS, layout="replicate")
        if any(item.is_tensor for item in (*few, *many)):
            return make(few, many, Verdict.SKIPPED, "a tensor on some ranks only")
        values = [[item.statistics[0] for item in side] for side in (few, many)]
        numbers = all(type(value) is int for side in values for value in side)
        if numbers and sum(values[0]) == sum(values[1]):
            return make(few, many, Verdict.PASS, layout="shard of a size")
        if len(set(ours)) == len(set(theirs)) == 1 and len(shapes) == 1:
            reason = f"{ours[0]} on the side with fewer ranks, {theirs[0]} on the other"
            return make(few, many, Verdict.FAIL, reason, layout="replicate")
        return make(few, many, Verdict.SKIPPED, f"{UNKNOWN}: scalars that differ between ranks")

    def _tensors(self, within: str, few: Items, many: Items) -> ShardRow:
        comparer = self._comparer
        dtypes = {dtype_named(item.dtype) for item in (*few, *many)}
        if DType.UNDEFINED in dtypes:
            return comparer.make(few, many, Verdict.SKIPPED, "its element type is not known")
        if comparer.mode == "md5":
            return self._checksums(few, many)
        has_values = all(item.data_name != NO_FILE for item in (*few, *many))
        if comparer.mode == "statistics" or not has_values:
            return self._statistics(within, few, many)
        try:
            with opened(comparer.few, few) as ours, opened(comparer.many, many) as theirs:
                return self._values(within, few, many, ours, theirs)
        except AitError as error:
            return comparer.make(few, many, Verdict.SKIPPED, str(error))

    def _values(
        self, within: str, few: Items, many: Items, ours: list[Array], theirs: list[Array]
    ) -> ShardRow:
        comparer = self._comparer
        key = self._key(within, few, many)
        more, ids = self._lookup(within, ours)
        found = infer(
            ours,
            theirs,
            comparer.given.of(many[0].name),
            comparer.remembered(key),
            more,
            ids,
        )
        if found is None:
            reason = f"{UNKNOWN}: no layout makes these parts the whole"
            return comparer.make(few, many, Verdict.SKIPPED, reason)
        comparer.remember(key, many[0].name, found.layouts, confirmed=found.choice.is_confirmed)
        golden, mine = (few, many) if comparer.few_is_golden else (many, few)
        judged = judge_pieces(
            found.choice.pieces,
            dtype_named(golden[0].dtype),
            dtype_named(mine[0].dtype),
            whole_is_golden=comparer.few_is_golden,
        )
        off = judged.off
        if off and found.layouts.many.kind == "sum":
            off = self._blamed(found, theirs)
        cells: tuple[Cell, ...] = ()
        if judged.totals.count and not judged.totals.misplaced:
            cells = metric_cells(judged.totals)[0]
        verdict = Verdict.FAIL if judged.reason else Verdict.PASS
        if many[0].state != "output":
            self._wrong_inputs.update(off)
        return comparer.make(
            few, many, verdict, judged.reason, layout=str(found.layouts), off=off, cells=cells
        )

    def _blamed(self, found: Inferred, parts: list[Array]) -> tuple[int, ...]:
        """Ranks whose part of a sum is wrong, by what each of them was given.

        If all parts are right for what went into them, those are with wrong inputs.
        """
        wanted = (".input.0", ".input.1", ".input.2", ".input.bias")
        inputs: list[Mapping[str, Array]] = []
        with contextlib.ExitStack() as stack:
            for rank, items in enumerate(self._many):
                given = {name: items[name] for name in wanted if name in items}
                usable = [item for item in given.values() if item.data_name != NO_FILE]
                arrays = stack.enter_context(
                    opened(self._comparer.many, usable, [rank] * len(usable))
                )
                names = [name for name, item in given.items() if item.data_name != NO_FILE]
                inputs.append(dict(zip(names, arrays, strict=True)))
            wrong = wrong_parts(self._function, inputs, found.whole, parts)
        return wrong or tuple(sorted(self._wrong_inputs))

    def _statistics(self, within: str, few: Items, many: Items) -> ShardRow:
        comparer = self._comparer
        shapes = [[_shape(item) for item in side] for side in (few, many)]
        given = comparer.given.of(many[0].name)
        permitted = [given] if given else list(layouts_of_shapes(*shapes))
        if not permitted:
            return comparer.make(few, many, Verdict.SKIPPED, f"{UNKNOWN}: its shapes do not fit")
        if len(few) > 1:
            reason = "without values only one rank can be compared with several"
            return comparer.make(few, many, Verdict.SKIPPED, f"{UNKNOWN}: {reason}")
        limits = tolerance_for(dtype_named(few[0].dtype), dtype_named(many[0].dtype))
        sizes = math.prod(shapes[0][0]), [math.prod(shape) for shape in shapes[1]]
        found = choose_by_statistics(
            [each.many for each in permitted], few[0], many, sizes, limits.relative_euclidean
        )
        if found is None:
            reason = "statistics do not tell how its parts add up"
            return comparer.make(few, many, Verdict.SKIPPED, f"{UNKNOWN}: {reason}")
        layouts = Layouts(Layout("replicate"), found.layout)
        comparer.remember(None, many[0].name, layouts, confirmed=False)
        whole = few[0].statistics
        cells = (*found.combined, *whole) if comparer.few_is_golden else (*whole, *found.combined)
        verdict = Verdict.FAIL if found.reason else Verdict.PASS
        return comparer.make(
            few, many, verdict, found.reason, layout=str(layouts), off=found.off, cells=cells
        )

    def _checksums(self, few: Items, many: Items) -> ShardRow:
        make = self._comparer.make
        counts = {item.md5 for item in few}
        off = tuple(rank for rank, item in enumerate(many) if item.md5 not in counts)
        if len(counts) > 1 or len(off) * 2 > len(many):
            reason = f"{UNKNOWN}: checksums of parts do not tell that of the whole"
            return make(few, many, Verdict.SKIPPED, reason)
        verdict = Verdict.FAIL if off else Verdict.PASS
        reason = "the checksum differs" if off else ""
        return make(few, many, verdict, reason, layout="replicate", off=off)

    def _key(self, within: str, few: Items, many: Items) -> object:
        """The same for this tensor in other calls of the function, or in other layers."""
        name = _NUMBERS.sub("0", self._name)
        return name, within, *(item.shape for item in (*few, *many))

    def _lookup(self, within: str, ours: list[Array]) -> tuple[list[Layout], Array | None]:
        """What a table that is cut by its rows permits for indices and what is found."""
        if self._table is None or within not in (".input.0", ".output.0"):
            return [], None
        kind: str = "ids" if within == ".input.0" else "rows"
        layout = Layout("ids" if kind == "ids" else "rows", rows=self._table.rows)
        if kind == "ids":
            return [layout], ours[0]
        item = self._few[0][".input.0"]
        if item.data_name == NO_FILE:
            return [], None
        with opened(self._comparer.few, [item]) as found:
            return [layout], np.array(found[0])

    def _rows_of_table(self) -> Layout | None:
        """The rows of each rank's part of the table; None unless it is cut by rows."""
        if len(self._few) > 1:
            return None
        sides = (self._comparer.few, self._few), (self._comparer.many, self._many)
        whole, parts = (
            _saved_shapes(ranks, [each[_TABLE] for each in side]) for ranks, side in sides
        )
        if not whole[0] or any(len(part) != 2 or part[1:] != whole[0][1:] for part in parts):
            return None
        rows = tuple(part[0] for part in parts)
        if rows[0] == whole[0][0]:
            return None
        fits = ranges_of(Layout("shard"), rows, whole[0][0]) is not None
        return Layout("rows", rows=rows) if fits else None


def _saved_shapes(ranks: Ranks, items: Items) -> list[tuple[int, ...]]:
    """Dims of what was saved: of a DTensor, whose shape is the whole one, the part of the rank."""
    if any(item.data_name == NO_FILE for item in items):
        return [_shape(item) for item in items]
    try:
        with opened(ranks, items) as found:
            return [array.shape for array in found]
    except AitError:
        return [_shape(item) for item in items]


@contextlib.contextmanager
def opened(
    ranks: Ranks, items: Items, numbers: Sequence[int] | None = None
) -> Iterator[list[Array]]:
    """The values of one item of each rank."""
    with contextlib.ExitStack() as stack:
        found = []
        for rank, item in zip(numbers or range(len(items)), items, strict=True):
            values = stack.enter_context(open_file(value_file(ranks.sides[rank], item)))
            array = values.array
            if values.dtype is DType.BOOL and array.dtype == np.uint8:
                array = np.asarray(array != 0)
            found.append(array)
        yield found


def _shape(item: Item) -> tuple[int, ...]:
    try:
        found = json.loads(item.shape)
    except ValueError:
        return ()
    return tuple(found) if all(type(each) is int for each in found) else ()


def _shapes(items: Items) -> str:
    """Shapes of all ranks: ``8 x [6, 32]``, or one after the other if they differ."""
    shapes = [item.shape for item in items]
    if not shapes:
        return "N/A"
    if len(shapes) == 1:
        return shapes[0]
    return f"{len(shapes)} x {shapes[0]}" if len(set(shapes)) == 1 else " ".join(shapes)
