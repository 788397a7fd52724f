from __future__ import annotations

import csv
import io
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_library import built_kernels, statistics_build
from torch import Tensor

from ait_llm.core.kernels import NativeKernels, Numbers, loaded_openmp
from ait_llm.dump.pytorch import statistics
from ait_llm.dump.pytorch.layouts import is_ordinary
from ait_llm.dump.pytorch.statistics import (
    COLUMNS,
    KnownStatistics,
    OrdinaryCells,
    csv_cell,
    ordinary_numbers,
    tensor_statistics,
)
from ait_llm.dump.pytorch.statistics_table import StatisticsTable

WAYS = [pytest.param("native", marks=pytest.mark.native), "torch"]


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    kernels = built_kernels() if request.param == "native" else None
    monkeypatch.setattr(statistics, "native_kernels", lambda: kernels)
    return str(request.param)


def expected(tensor: Tensor) -> list[float]:
    """Maximum, minimum, mean, norm, NaN and Inf counts, in extended precision by NumPy."""
    tensor = tensor.resolve_neg()
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64, torch.int64, torch.float64):
        values = tensor.numpy().astype(np.longdouble).reshape(-1)
    else:
        values = tensor.to(torch.float32 if tensor.dtype != torch.int32 else torch.float64)
        values = values.to(torch.float64).numpy().astype(np.longdouble).reshape(-1)
    finite = values[np.isfinite(values)]
    counts = [float(np.isnan(values).sum()), float(np.isinf(values).sum())]
    if not finite.size:
        return [float("nan")] * 4 + counts
    norm = np.sqrt((finite**2).sum())
    return [float(each) for each in (finite.max(), finite.min(), finite.mean(), norm)] + counts


def cells_of(tensor: Tensor, known: KnownStatistics | None = None) -> list[str]:
    found = tensor_statistics(tensor, known)
    return next(csv.reader([found if isinstance(found, str) else found()]))


def check(tensor: Tensor) -> None:
    cells = cells_of(tensor)
    assert cells[:2] == [str(tensor.dtype)[6:], ",".join(map(str, tensor.shape))]
    got = [float("nan") if cell == "N/A" else float(cell) for cell in cells[2:]]
    wanted = expected(tensor)
    np.testing.assert_array_equal(got[:2] + got[4:], wanted[:2] + wanted[4:])
    size = wanted[3] if np.isfinite(wanted[3]) else 0.0
    np.testing.assert_allclose(got[2], wanted[2], rtol=1e-12, atol=1e-12 * size)
    np.testing.assert_allclose(got[3], wanted[3], rtol=1e-12, atol=5e-324)


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", FLOATS + EIGHTS, ids=str)
@pytest.mark.parametrize("size", [1, 33, 5003])
def test_random_numbers(dtype: torch.dtype, size: int) -> None:
    torch.manual_seed(size)
    check((torch.randn(size) * 3 + 0.25).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("which", ["max", "smallest_normal", "tiny"])
def test_largest_and_smallest_magnitudes(dtype: torch.dtype, which: str) -> None:
    value = getattr(torch.finfo(dtype), which)
    check(torch.full((3000,), value, dtype=dtype))
    check(torch.tensor([-value, value, 0.0] * 50, dtype=dtype))


def test_subnormal_numbers() -> None:
    check(torch.full((2100,), 5e-324, dtype=torch.float64))
    check(torch.full((2100,), 1e-45, dtype=torch.float32))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e5m2], ids=str)
def test_elements_that_are_not_finite_are_counted_and_left_out(dtype: torch.dtype) -> None:
    tensor = torch.randn(5000)
    tensor[::7], tensor[3::1000], tensor[4::900] = float("nan"), float("inf"), -float("inf")
    check(tensor.to(dtype))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_tensor_without_finite_elements_has_counts_only(value: float) -> None:
    cells = cells_of(torch.full((40,), value))
    nan, inf = ("40", "0") if value != value else ("0", "40")
    assert cells[2:] == ["N/A"] * 4 + [nan, inf]


@pytest.mark.parametrize("dtype", INTEGERS + UNSIGNED, ids=str)
def test_integers(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    # Up to the 53 bits that a double holds exactly.
    low, high = max(info.min, -(2**53)), min(info.max, 2**53)
    generator = np.random.default_rng(5)
    drawn = generator.integers(low, high, 4000, dtype=np.int64, endpoint=True)
    check(torch.from_numpy(np.append(drawn, [low, high]).astype(str(dtype)[6:])))


def test_booleans() -> None:
    check(torch.arange(1000) % 3 == 0)


def test_scalar_and_empty_tensors() -> None:
    check(torch.tensor(-2.5))
    assert cells_of(torch.zeros(2, 0))[1:] == ["2,0", *["N/A"] * 4, "0", "0"]


def test_strides_do_not_matter() -> None:
    base = torch.randn(40, 50, 6)
    for view in (
        base.transpose(0, 2),
        base[:, ::2],
        base[3:, 4:9, 1],
        base[0, 0].expand(30, 6),
        base[:, :1].transpose(0, 1),
    ):
        check(view)


def test_negation_that_is_only_a_flag() -> None:
    check(torch.randn(9, dtype=torch.complex64).conj().imag)


def test_complex_numbers_are_measured_by_magnitude() -> None:
    cells = cells_of(torch.tensor([3 + 4j, 0j]))
    assert [float(cell) for cell in cells[2:]] == [5.0, 0.0, 2.5, 5.0, 0.0, 0.0]


def test_values_are_those_of_the_moment_of_the_call() -> None:
    tensor = torch.ones(10)
    pending = tensor_statistics(tensor)
    tensor.fill_(7)
    text = pending if isinstance(pending, str) else pending()
    assert text.split(",")[2] == "1.0"


def test_tensors_without_values_have_type_and_shape_only() -> None:
    assert cells_of(torch.empty(3, 2, device="meta")) == ["float32", "3,2", *["N/A"] * 6]
    assert cells_of(torch.eye(2).to_sparse())[2:] == ["N/A"] * 6


def test_gradients_and_versions_are_left_alone() -> None:
    tensor = torch.randn(4, 5, requires_grad=True)
    view = tensor.t()
    before = view._version
    check(view.detach())
    cells_of(view)
    assert view._version == before
    assert view.requires_grad


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=70),
    st.sampled_from(["native", "torch"]),
)
def test_any_single_precision_numbers(values: list[float], chosen: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kernels = built_kernels() if chosen == "native" else None
        patch.setattr(statistics, "native_kernels", lambda: kernels)
        check(torch.tensor(values))


@pytest.mark.native
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_numbers_do_not_depend_on_the_number_of_threads(way: str, dtype: torch.dtype) -> None:
    if way != "native":
        return
    runtime = loaded_openmp()
    if runtime is None:
        pytest.skip("torch has no OpenMP runtime here that could be called")
    tensor = (torch.randn(1_000_003) * 50).to(dtype)
    tensor[70_000] = 300
    kernels, before = built_kernels(), torch.get_num_threads()
    alone = cells_of(tensor)
    try:
        torch.set_num_threads(3)
        kernels.share_threads(runtime)
        assert cells_of(tensor) == alone
        check(tensor)
        other = tensor.clone()
        assert kernels.equal(tensor.data_ptr(), other.data_ptr(), tensor.nbytes)
        other[900_000] = 5
        assert not kernels.equal(tensor.data_ptr(), other.data_ptr(), tensor.nbytes)
    finally:
        kernels.share_threads(None)
        torch.set_num_threads(before)


@pytest.mark.native
def test_memory_that_modules_pass_on_is_reduced_once(way: str) -> None:
    if way != "native":
        return
    kernels = Counting(built_kernels())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "native_kernels", lambda: kernels)
        known = KnownStatistics()
        tensor = torch.randn(200, 300)
        first = cells_of(tensor, known)
        assert cells_of(tensor.view(300, 200), known)[2:] == first[2:]
        assert cells_of(tensor.t(), known)[2:] == first[2:]
        assert kernels.reductions == 1
        tensor_statistics(tensor[100:], known)
        assert kernels.reductions == 2
        known.forget()
        tensor_statistics(tensor, known)
        assert kernels.reductions == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x.t().mul_(2),
        lambda x: x[150, 7].zero_(),
        lambda x: x.data.mul_(2),
        lambda x: np.negative(x.numpy(), out=x.numpy()),
    ],
)
def test_changed_memory_is_reduced_again(change: Callable[[Tensor], object]) -> None:
    known = KnownStatistics()
    tensor = torch.randn(200, 300)
    tensor_statistics(tensor, known)
    change(tensor)
    assert cells_of(tensor, known) == cells_of(tensor)


@pytest.mark.native
def test_memory_stays_known_while_one_of_its_tensors_lives(way: str) -> None:
    if way != "native":
        return
    kernels = Counting(built_kernels())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "native_kernels", lambda: kernels)
        known = KnownStatistics()
        tensor = torch.randn(200, 300)
        first = cells_of(tensor, known)
        view = tensor.view(-1)
        assert cells_of(view, known)[2:] == first[2:]
        del tensor
        assert cells_of(view.view(100, 600), known)[2:] == first[2:]
        assert kernels.reductions == 1


def test_other_memory_at_the_address_of_a_known_tensor_is_reduced() -> None:
    known = KnownStatistics()
    tensor = torch.randn(200, 300)
    alias = torch.from_numpy(tensor.numpy())  # torch does not know that they share
    tensor_statistics(tensor, known)
    tensor.add_(1)
    assert cells_of(alias, known) == cells_of(alias)
    alias.add_(1)
    assert cells_of(alias, known) == cells_of(alias)


def test_known_statistics_keep_nothing_of_a_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a weak reference keeps of a freed storage keeps its memory from being used again."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a weak reference to a storage was taken")

    monkeypatch.setattr(torch.UntypedStorage, "_weak_ref", refuse)
    known = KnownStatistics()
    tensor = torch.randn(200, 300)
    before = sys.getrefcount(tensor)
    assert cells_of(tensor, known) == cells_of(tensor.view(200, 300), known)
    assert sys.getrefcount(tensor) == before


def test_memory_of_a_freed_tensor_is_not_taken_for_known() -> None:
    known = KnownStatistics()
    for value in range(20):
        tensor = torch.full((40000,), float(value))
        assert cells_of(tensor, known)[2] == f"{value}.0"
        del tensor


@pytest.mark.native
@pytest.mark.parametrize("size", [1, 7, 64, 100, 1000, 1 << 15])
def test_sample_of_little_memory_sees_every_byte(way: str, size: int) -> None:
    if way != "native":
        return
    kernels = built_kernels()
    memory = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    marks = {kernels.sample(memory.ctypes.data, size)}
    places = range(0, size, max(1, size // 200))
    for place in places:
        memory[place] ^= 1
        marks.add(kernels.sample(memory.ctypes.data, size))
        memory[place] ^= 1
    assert len(marks) == 1 + len(places)


@pytest.mark.native
def test_sample_of_much_memory_sees_both_ends_and_the_stretches_between(way: str) -> None:
    if way != "native":
        return
    kernels = built_kernels()
    size = 255 * 4096 + 64
    memory = np.zeros(size, dtype=np.uint8)
    marks = {kernels.sample(memory.ctypes.data, size)}
    places = [*range(0, size, 4096), size - 1]
    for place in places:
        memory[place] = 1
        marks.add(kernels.sample(memory.ctypes.data, size))
        memory[place] = 0
    assert len(marks) == 1 + len(places)


class Counting(NativeKernels):
    """Counts how often memory is reduced."""

    def __init__(self, kernels: NativeKernels) -> None:
        self.__dict__ |= kernels.__dict__
        self.reductions = 0

    def statistics(self, element: int, address: int, count: int) -> Numbers:
        self.reductions += 1
        return super().statistics(element, address, count)


def test_table_has_one_row_for_each_tensor(tmp_path: Path) -> None:
    table = StatisticsTable(tmp_path)
    row = ["root", "Net", "0", "output", *cells_of(torch.ones(2, 2))]
    cells = tensor_statistics(torch.ones(2, 2))
    text = "root,Net,0,output," + (cells if isinstance(cells, str) else cells())
    table.add(2, text)
    table.add(2, text)
    table.flush()
    text = (tmp_path / "2" / "statistics.csv").read_text()
    lines = list(csv.reader(text.splitlines()))
    assert lines == [list(COLUMNS), row, row]
    table.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2))
def test_any_text_is_a_cell(texts: list[str]) -> None:
    line = ",".join(csv_cell(text) for text in texts) + "\r\n"
    assert list(csv.reader(io.StringIO(line, newline=""))) == [texts]


def test_table_of_a_step_that_comes_again_is_continued(tmp_path: Path) -> None:
    table = StatisticsTable(tmp_path)
    for step in (0, 1, 0):
        table.add(step, "x")
    table.flush()
    table.close()
    assert (tmp_path / "0" / "statistics.csv").read_text().split()[1:] == ["x", "x"]


@pytest.mark.native
@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=1500))
def test_native_checksum_is_that_of_zlib(data: bytes) -> None:
    kernels = built_kernels()
    assert kernels.crc32(memoryview(data)) == zlib.crc32(data)


@pytest.mark.native
@pytest.mark.parametrize("options", ["", "-DAIT_SANITIZE=ON"])
def test_native_kernels_agree_with_plain_loops(options: str) -> None:
    program = statistics_build(options) / "statistics" / "statistics_test"
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_what_is_reduced_at_once_in_inference_mode_is_what_is_reduced_elsewhere(
    dtype: torch.dtype,
) -> None:
    values = (torch.arange(-30, 34).reshape(8, 8) * 3).to(dtype)
    expected = tensor_statistics(values)
    with torch.inference_mode():
        found = ordinary_numbers(values.clone())
    assert (found is None) is (statistics.native_kernels() is None)
    if found is not None:
        cells = OrdinaryCells(dtype, values.shape, found)()
        assert cells == (expected if isinstance(expected, str) else expected())


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x[:, 2:5], lambda x: x.T[:2], lambda x: x[::2, 1]],
    ids=["turned", "columns", "turned-rows", "strided"],
)
def test_views_have_the_numbers_of_their_own_elements_alone(
    view: Callable[[Tensor], Tensor],
) -> None:
    with torch.inference_mode():
        part = view(torch.arange(48, dtype=torch.float32).reshape(6, 8))
        found = ordinary_numbers(part)
    assert found is None or list(found) == pytest.approx(expected(part))


def test_only_plain_tensors_of_inference_mode_on_the_host_are_ordinary() -> None:
    assert not is_ordinary(torch.ones(3))  # it counts changes
    with torch.inference_mode():
        whole = torch.ones(4, 4)
        assert is_ordinary(whole)
        assert is_ordinary(whole.T[:2])
        others = [torch._neg_view(whole), whole.to_sparse(), torch.empty(2, device="meta")]
        assert not any(is_ordinary(each) for each in others)


def test_what_has_no_numbers_is_left_to_others() -> None:
    with torch.inference_mode():
        others = [torch.empty(0), torch.ones(2, dtype=torch.complex64), torch.ones(2) > 0]
        assert [ordinary_numbers(each) for each in others] == [None] * 3
