"""JSON text exactly as the acceleration library prints it.

The library prints with nlohmann::json's ``dump()``: keys in byte order, no spaces, floats widened
to double and printed with the fewest digits that read back the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any


def dump_json(value: Any) -> str:
    """Compact JSON text of dicts, sequences, strings, booleans and numbers."""
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=lambda item: item[0].encode())
        return "{" + ",".join(f"{json.dumps(key)}:{dump_json(item)}" for key, item in items) + "}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Sequence):
        return "[" + ",".join(map(dump_json, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _double_text(value)
    if value is None:
        return "null"
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _double_text(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    # Python prints 1e15 in full and switches to an exponent at 1e16, nlohmann already at 1e15.
    if 1e15 <= abs(value) < 1e16:
        digits = "".join(map(str, Decimal(repr(value)).normalize().as_tuple().digits))
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{'-' if value < 0 else ''}{mantissa}e+15"
    return repr(value)
