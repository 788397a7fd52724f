"""Statistics computed by the probe, against NumPy in double precision."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from native_host import Host, Run, call, tensor

pytestmark = pytest.mark.native

PATH = "0_{pid}/3/0_Layer/1_LinearOperation/after/outtensor0_output.bin"
COLUMNS = "op,type,phase,tensor,dtype,format,shape,bytes,max,min,mean,l2norm,nan,inf,path"


def header_of(file: Path) -> dict[str, str]:
    lines = file.read_bytes().partition(b"$End=1\n")[0].decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def rows_of(run: Run) -> list[dict[str, str]]:
    (table,) = (run.dump / "statistics").glob("0_*/tensor_statistics_3.csv")
    text = table.read_text().splitlines()
    assert text[0] == COLUMNS
    return list(csv.DictReader(text))


def save(host: Host, values: np.ndarray[Any, Any], code: int, **settings: Any) -> Run:
    line = call("tensor", 2, code, str(values.size), PATH, f"hex:{values.tobytes().hex()}")
    return host.script(line, "before", ATB_DUMP_TYPE="stats", **settings)


def check(found: dict[str, str], values: np.ndarray[Any, Any]) -> None:
    wide = values.astype(np.float64).ravel()
    finite = wide[np.isfinite(wide)]
    assert int(found["nan"]) == int(np.isnan(wide).sum())
    assert int(found["inf"]) == int(np.isinf(wide).sum())
    if finite.size == 0:
        assert all(math.isnan(float(found[key])) for key in ("max", "min", "mean", "l2norm"))
        return
    assert float(found["max"]) == finite.max()
    assert float(found["min"]) == finite.min()
    scale = float(np.abs(finite).mean())
    assert float(found["mean"]) == pytest.approx(finite.mean(), abs=1e-12 * scale, rel=1e-12)
    assert float(found["l2norm"]) == pytest.approx(float(np.linalg.norm(finite)), rel=1e-12)


TYPES: dict[str, tuple[int, Any]] = {
    "float": (0, np.float32),
    "float16": (1, np.float16),
    "bf16": (27, ml_dtypes.bfloat16),
    "double": (11, np.float64),
    "int8": (2, np.int8),
    "int16": (6, np.int16),
    "int32": (3, np.int32),
    "int64": (9, np.int64),
    "uint8": (4, np.uint8),
    "uint16": (7, np.uint16),
    "uint32": (8, np.uint32),
    "uint64": (10, np.uint64),
    "bool": (12, np.bool_),
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("size", [1, 7, 8, 1023, 5000])
def test_every_type_agrees_with_numpy(host1: Host, name: str, size: int) -> None:
    code, dtype = TYPES[name]
    random = np.random.default_rng(size)
    values = (random.standard_normal(size) * 50).astype(dtype)
    run = save(host1, values, code)
    (file,) = run.bins()
    check(header_of(file), values)
    (row,) = rows_of(run)
    check(row, values)


@pytest.mark.parametrize("name", ["float", "float16", "bf16", "double"])
def test_special_values_are_counted_and_left_out(host1: Host, name: str) -> None:
    code, dtype = TYPES[name]
    values = np.array([1, np.nan, -2, np.inf, -np.inf, 0.0, -0.0, np.nan, 3.5], dtype)
    (file,) = save(host1, values, code).bins()
    check(header_of(file), values)


def test_every_half_is_decoded(host1: Host) -> None:
    values = np.arange(65536, dtype=np.uint16).view(np.float16)
    (file,) = save(host1, values, 1).bins()
    check(header_of(file), values)


def test_the_smallest_numbers_are_not_flushed(host1: Host) -> None:
    values = np.array([5.960464477539063e-08, -5.960464477539063e-08], np.float16)
    (file,) = save(host1, values, 1).bins()
    check(header_of(file), values)


def test_no_finite_element_gives_nan(host1: Host) -> None:
    values = np.array([np.nan, np.inf], np.float32)
    run = save(host1, values, 0)
    check(header_of(run.bins()[0]), values)
    check(rows_of(run)[0], values)


def test_statistics_alone_store_no_data(host1: Host) -> None:
    run = save(host1, np.ones(4, np.float16), 1)
    assert run.bins()[0].read_bytes() == (
        b"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=1\ndims=4\n"
        b"max=1\nmin=1\nmean=1\nl2norm=2\nnan=0\ninf=0\n$End=1\n"
    )
    assert run.ledger()[1]["state"] == "described"


def test_rows_say_which_tensor_they_describe(host1: Host) -> None:
    run = save(host1, np.ones(4, np.float16), 1)
    (row,) = rows_of(run)
    assert row["op"] == "0_1"
    assert row["type"] == "LinearOperation"
    assert (row["phase"], row["tensor"]) == ("after", "outtensor0_output")
    assert (row["dtype"], row["format"], row["shape"], row["bytes"]) == ("1", "2", "4", "8")
    assert (run.dump / row["path"]).is_file()
    assert run.ledger()[-1]["rows"]["stats"] == 1


def test_a_type_without_a_number_line_has_no_statistics(host1: Host) -> None:
    run = save(host1, np.ones(4, np.complex64), 16)
    assert "max" not in header_of(run.bins()[0])
    assert rows_of(run)[0]["max"] == ""


@pytest.mark.parametrize("count", [100, 700001])
@pytest.mark.parametrize("kind", ["numbers", "nan"])
def test_data_and_statistics_can_be_stored_together(host1: Host, count: int, kind: str) -> None:
    # The larger one passes the queue in pieces, with its header written last.
    values = np.full(count, -1.5, np.float32) if kind == "numbers" else np.full(count, np.nan, "f4")
    byte = "hex:" + values.tobytes().hex() if count == 100 else None
    if byte is None:
        pattern = values[:1].tobytes()
        # A ramp and a fill are all the driver knows: 0xff… is NaN, 0xbf… a number.
        fill = 255 if kind == "nan" else 0xBF
        values = np.full(count * 4, fill, np.uint8).view(np.float32)
        assert len(pattern) == 4
        byte = f"fill:{count * 4}:{fill}"
    run = host1.script(
        tensor(PATH, byte, dtype="0", dims=str(count)), "before", ATB_DUMP_TYPE="tensor|stats"
    )
    (file,) = run.bins()
    check(header_of(file), values)
    assert file.read_bytes().partition(b"$End=1\n")[2] == values.tobytes()


@pytest.mark.parametrize("queue", ["0", "65536", "268435456"])
def test_pieces_do_not_change_the_result(host1: Host, queue: str) -> None:
    run = host1.script(
        tensor(PATH, "ramp:300002:3", dtype="1", dims="150001"),
        "before",
        ATB_DUMP_TYPE="stats",
        AIT_PROBE_QUEUE_BYTES=queue,
    )
    data = bytes((i * 131 + i // 256 + 3) % 256 for i in range(300002))
    values = np.frombuffer(data, np.float16)
    check(rows_of(run)[0], values)
    assert rows_of(run)[0]["l2norm"] == header_of(run.bins()[0])["l2norm"]


def test_statistics_ask_the_host_to_wait_for_the_device(host1: Host) -> None:
    assert host1.script("data", ATB_DUMP_TYPE="stats", ATB_SAVE_TENSOR="2").answers == [True]
