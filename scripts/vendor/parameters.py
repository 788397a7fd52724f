"""Parameters in the words of the vendor's cases, and in those that the library prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vendor.cases import Case

# Words of the cases whose printed form has another name.
_NAMES = {
    "GroupedMatmulWithRoutingOperation": {"groupedMatmulType": "moeType"},
    "StridedBatchMatmulOperation": {"transA": "transposeA", "transB": "transposeB"},
}
_RESERVED = "rsv"


def printed(case: Case) -> Mapping[str, Any]:
    """The parameters of a case as dumps have them."""
    names = _NAMES.get(case.operator, {})
    return {names.get(key, key): value for key, value in case.params.items() if key != _RESERVED}
