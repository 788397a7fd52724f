"""Communication checked against its own inputs: no other side is needed for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ait_llm.compare.api.shards.choose import distance
from ait_llm.compare.api.shards.pieces import Piece, total
from ait_llm.core import DType
from ait_llm.formats.elements import Array
from ait_llm.judge import tolerance_for

_GATHERED = frozenset({"all_gather_into_tensor", "_all_gather_base"})
_SCATTERED = frozenset({"reduce_scatter_tensor", "_reduce_scatter_base"})
# Roundings of a sum over ranks in the type of the tensors, in units of what two sides may differ.
_ROOM = 2.0
Values = Mapping[str, Array]
Results = Sequence[tuple[str, Array]]


def wrong_results(
    function: str, ranks: Sequence[Values], dtype: DType, reduction: str, source: int
) -> tuple[int, ...] | None:
    """Members of a group that did not get what the inputs of all give; None if that is not known.

    Args:
        function: ``all_reduce``.
        ranks: tensors of each member of the group by name within the record.
        dtype: their logical element type.
        reduction: ``SUM``, ``MAX`` and so on.
        source: of a broadcast, as a place in the group.
    """
    found = _expected(function, ranks, reduction, source)
    if found is None:
        return None
    limit = _ROOM * tolerance_for(dtype, dtype).relative_euclidean
    wrong = []
    for member, results in enumerate(found):
        for name, right in results:
            mine = ranks[member].get(name)
            if mine is None or mine.shape != right.shape:
                return None
            if distance(Piece(member, (right,), (mine,))) > limit:
                wrong.append(member)
                break
    return tuple(wrong)


def _expected(
    function: str, ranks: Sequence[Values], reduction: str, source: int
) -> list[Results] | None:
    """What each member should get: names within the record, and tensors."""
    if function in _GATHERED or function in _SCATTERED:
        given = _inputs(ranks, (".input.1", ".input.input_tensor", ".input.input"))
    else:
        given = _inputs(ranks, (".input.0", ".input.tensor"))
    if function == "all_gather":
        given = _inputs(ranks, (".input.1", ".input.tensor"))
        if given is not None:
            results = [(f".output.0.{place}", each) for place, each in enumerate(given)]
            return [results] * len(ranks)
    if given is None or len({each.shape for each in given}) != 1:
        return None
    if function == "broadcast":
        if not 0 <= source < len(given):
            return None
        return [[(".output.0", given[source])]] * len(ranks)
    if function in _GATHERED:
        return [[(".output.0", np.concatenate(given))]] * len(ranks)
    reduced = _reduced(given, reduction)
    if reduced is None:
        return None
    if function == "all_reduce":
        return [[(".output.0", reduced)]] * len(ranks)
    if function in _SCATTERED and len(reduced) % len(ranks) == 0:
        return [[(".output.0", part)] for part in np.split(reduced, len(ranks))]
    return None


def _inputs(ranks: Sequence[Values], names: Sequence[str]) -> list[Array] | None:
    found = []
    for values in ranks:
        name = next((each for each in names if each in values), None)
        if name is None:
            return None
        found.append(values[name])
    return found


def _reduced(given: Sequence[Array], reduction: str) -> Array | None:
    if reduction in ("SUM", "AVG"):
        found = total(given)
        return found / len(given) if reduction == "AVG" else found
    kinds: dict[str, Callable[..., Array]] = {
        "MAX": np.maximum.reduce,
        "MIN": np.minimum.reduce,
        "PRODUCT": np.multiply.reduce,
    }
    function = kinds.get(reduction)
    return None if function is None else function([each.astype(np.float64) for each in given])
