"""Two arrays or files to one comparison."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.compare.pair import compare_opened
from ait_llm.compare.pipeline import settings_of
from ait_llm.compare.values import Values, open_file
from ait_llm.core.comparison import Comparison, TensorRecord
from ait_llm.formats import dtype_of, from_torch
from ait_llm.judge import Tolerance
from ait_llm.metrics import CustomMetric
from ait_llm.naming import shown
from ait_llm.storage import local_path


def compare_data(
    golden: Any,  # an array, a torch tensor, or a path
    mine: Any,  # the same
    *,
    metrics: Sequence[str] | None = None,
    custom: Sequence[str | CustomMetric] = (),
    tolerance: Tolerance | str | float | None = None,
    golden_name: str | None = None,
    my_name: str | None = None,
) -> Comparison:
    """Compare two tensors that are at hand.

    Args:
        golden: the trusted side: anything NumPy takes as an array, a torch tensor on any device,
            or the path or URL of a tensor file.
        mine: the side under suspicion, of the same kinds.
        metrics: names of metrics, all when None.
        custom: the user's own metrics, ``path.py:function`` or loaded ones.
        tolerance: limits of the verdict: see ``metrics.parse_tolerance``.
        golden_name, my_name: which tensor, for files that hold several.

    Returns:
        The comparison; numbers are in ``values`` by metric name.

    Raises:
        FormatError: a file cannot be read.
        ValueError: the shapes differ, or elements are no numbers.
        UnknownNameError: no metric of that name.

    Example:
        >>> import numpy as np
        >>> from ait_llm import compare_data
        >>> golden = np.array([1.0, 2.0, 3.0, 4.0], dtype=np.float32)
        >>> result = compare_data(golden, golden + np.float32(0.5))
        >>> result.verdict.value, result.values["max_absolute_error"], result.worst
        ('FAIL', 0.5, (0,))
    """
    settings = settings_of(metrics, custom, tolerance, None)
    with ExitStack() as stack:
        first = stack.enter_context(_opened(golden, golden_name))
        second = stack.enter_context(_opened(mine, my_name))
        records = _record(golden, first, golden_name), _record(mine, second, my_name)
        names = {"golden": records[0], "mine": records[1]}
        return compare_opened(first, second, settings, names=names)


def _opened(data: Any, name: str | None) -> Values:
    if isinstance(data, str | Path):
        return open_file(local_path(data), name)
    if type(data).__module__.partition(".")[0] == "torch":
        return Values(*from_torch(data))
    array = np.asarray(data)
    return Values(array, dtype_of(array))


def _record(data: Any, values: Values, name: str | None) -> TensorRecord:
    path = shown(str(local_path(data))) if isinstance(data, str | Path) else ""
    return TensorRecord(
        op=Path(path).name,
        op_id="",
        op_type="",
        name=name or "",
        role="file",
        index=0,
        path=path,
        dtype=values.dtype,
        shape=tuple(values.array.shape),
    )
