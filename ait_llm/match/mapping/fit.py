"""What is done to two tensors of other layouts where a line says nothing: packed, padded, heads."""

from __future__ import annotations

from functools import cached_property

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens, find_tokens
from ait_llm.match.shapes import align, align_shapes
from ait_llm.match.views import View
from ait_llm.program.program import Program
from ait_llm.program.run import Run

Shape = tuple[int, ...]
BothViews = tuple[tuple[View, ...], tuple[View, ...]]


class Fit:
    """Views that give tensors of two runs one shape."""

    def __init__(self, golden: Run, mine: Run) -> None:
        self._runs = golden, mine
        kinds = {golden.kind, mine.kind}
        self._are_programs = kinds <= {"atb", "torch"} and "torch" in kinds

    def views(
        self, golden: Shape, mine: Shape, whole: tuple[Tensor, Tensor] | None = None
    ) -> BothViews | str:
        """Views for both sides, or why there are none.

        Args:
            golden, mine: shapes.
            whole: the tensors, where nothing was done to them yet.
        """
        if self._are_programs:
            found = self._by_tokens(golden, mine)
            return found or f"shapes {list(golden)} and {list(mine)}"
        aligned = align(*whole) if whole is not None else align_shapes(golden, mine)
        if not isinstance(aligned, str):
            return aligned.golden, aligned.mine
        views = make_views(golden, mine, None)
        return aligned if views is None else (views.left, views.right)

    def _by_tokens(self, golden: Shape, mine: Shape) -> BothViews | None:
        tokens, left_is_golden = self._tokens
        if left_is_golden:
            views = make_views(golden, mine, tokens)
            return None if views is None else (views.left, views.right)
        views = make_views(mine, golden, tokens)
        return None if views is None else (views.right, views.left)

    @cached_property
    def _tokens(self) -> tuple[Tokens | None, bool]:
        """The tokens of both, and whether golden is the left one, as for the matcher."""
        try:
            golden, mine = (Program(run) for run in self._runs)
            left_is_golden = golden.fusing > mine.fusing
            sides = (golden, mine) if left_is_golden else (mine, golden)
            return find_tokens(*sides), left_is_golden
        except AitError:
            return None, True
