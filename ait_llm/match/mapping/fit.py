"""What is done to two tensors of other layouts where a line says nothing: packed, padded, heads."""

from __future__ import annotations

from functools import cached_property

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens, find_tokens
from ait_llm.match.shapes import align, align_shapes
from ait_llm.match.views import View
from ait_llm.program.adapters import program_of
from ait_llm.program.one_pass import Pass

Shape = tuple[int, ...]
BothViews = tuple[tuple[View, ...], tuple[View, ...]]


class Fit:
    """Views that give tensors of two runs one shape."""

    def __init__(self, golden: Pass, mine: Pass) -> None:
        self._runs = golden, mine

    def views(
        self, golden: Shape, mine: Shape, whole: tuple[Tensor, Tensor] | None = None
    ) -> BothViews | str:
        """Views for both sides, or why there are none.

        Args:
            golden, mine: shapes.
            whole: the tensors, where nothing was done to them yet.
        """
        aligned = align(*whole) if whole is not None else align_shapes(golden, mine)
        shaped = aligned if isinstance(aligned, str) else (aligned.golden, aligned.mine)
        if self._are_alike and not isinstance(shaped, str):
            return shaped
        return self._by_tokens(golden, mine) or shaped

    def _by_tokens(self, golden: Shape, mine: Shape) -> BothViews | None:
        tokens, left_is_golden = (None, True) if self._are_alike else self._tokens
        left, right = (golden, mine) if left_is_golden else (mine, golden)
        views = make_views(left, right, tokens)
        if views is None:
            return None
        return (views.left, views.right) if left_is_golden else (views.right, views.left)

    @property
    def _are_alike(self) -> bool:
        """True if no program is made of either: both are of one kind that needs none."""
        kinds = {run.kind for run in self._runs}
        return len(kinds) == 1 and not self._runs[0].traits.dotted

    @cached_property
    def _tokens(self) -> tuple[Tokens | None, bool]:
        """The tokens of both, and whether golden is the left one, as for the matcher."""
        try:
            golden, mine = (program_of(run) for run in self._runs)
            if golden is None or mine is None:
                return None, True
            left_is_golden = golden.fusing > mine.fusing
            sides = (golden, mine) if left_is_golden else (mine, golden)
            return find_tokens(*sides), left_is_golden
        except AitError:
            return None, True
