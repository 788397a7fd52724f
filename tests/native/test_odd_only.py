"""A capture for the search for overflows: data of what is odd, statistics of the rest."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from native_host import Host, call

from ait_llm.formats import load

pytestmark = pytest.mark.native

PATH = "0_{pid}/3/0_Layer/1_LinearOperation/after/outtensor0_output.bin"
HALF, BRAIN, FLOAT = (1, np.float16), (27, ml_dtypes.bfloat16), (0, np.float32)


def saved(host: Host, values: np.ndarray[Any, Any], code: int, **settings: Any) -> Any:
    """The file of one tensor: its values, or None if it has none."""
    line = call("tensor", 2, code, str(values.size), PATH, f"hex:{values.tobytes().hex()}")
    types = {"ATB_DUMP_TYPE": "tensor|stats", "AIT_PROBE_ODD_ONLY": "1"} | settings
    run = host.script(line, **types)
    (file,) = (path for path in run.bins() if f"_{run.pid}/" in str(path))
    text = file.read_bytes().partition(b"$End=1\n")[0]
    assert b"nan=" in text  # the statistics are there in any case
    size = int(text.split(b"$Object.data=0,")[1].split(b"\n")[0]) if b"$Object.data=" in text else 0
    return load(file).array if size else None


@pytest.mark.parametrize(("code", "dtype"), [HALF, BRAIN, FLOAT], ids=["half", "brain", "float"])
@pytest.mark.parametrize("queue", ["0", "1000000"])  # by the host, by the writer
def test_values_are_kept_of_tensors_with_something_odd_alone(
    host1: Host, code: int, dtype: Any, queue: str
) -> None:
    end = float(ml_dtypes.finfo(dtype).max)
    clean = np.array([1, -2, end / 2, 0], dtype)
    assert saved(host1, clean, code, AIT_PROBE_QUEUE_BYTES=queue) is None
    for odd in (np.nan, -np.inf, end):
        values = np.array([1, odd, 0, 5], dtype)
        kept = saved(host1, values, code, AIT_PROBE_QUEUE_BYTES=queue)
        np.testing.assert_array_equal(kept.astype(np.float64), values.astype(np.float64))


def test_lengths_and_slots_are_kept_and_large_tables_are_not(host1: Host) -> None:
    assert saved(host1, np.arange(9, dtype=np.int32), 3) is not None
    assert saved(host1, np.zeros((1 << 16) + 1, np.int32), 3) is None


def test_without_the_setting_everything_is_kept(host1: Host) -> None:
    assert saved(host1, np.ones(4, np.float16), 1, AIT_PROBE_ODD_ONLY="0") is not None
