"""However a pair is cut, laid out or divided among threads, its numbers are the same."""

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from ait_llm.metrics import measure_pair
from ait_llm.metrics.native import CHUNK, native_metrics
from ait_llm.metrics.numpy_pass import Settings

pytestmark = pytest.mark.native
SETTINGS = Settings(None, 1, 1e-3, 1e-5)


@pytest.fixture(scope="module")
def pair():
    generator = np.random.default_rng(1)
    golden = generator.standard_normal(2 * CHUNK + 12345, dtype=np.float32)
    mine = golden + np.float32(1e-3) * generator.standard_normal(golden.size, dtype=np.float32)
    mine[CHUNK + 77] = np.nan
    mine[CHUNK + 5] += 40  # moves the reference of the weights
    return golden.astype(np.float16), mine.astype(np.float16)


@pytest.fixture
def native():
    library = native_metrics()
    if library is None:
        pytest.skip("the native metrics are not installed")
    return library


def test_threads_do_not_change_a_bit(pair):
    one, *more = (measure_pair(*pair, jobs=jobs) for jobs in (1, 2, 3))
    assert more == [one, one]


def test_odd_pieces_do_not_change_a_bit(pair, native):
    whole = native.totals(*pair, 0, pair[0].size, SETTINGS)
    state = native.state(pair[0].dtype, pair[1].dtype, SETTINGS)
    cuts = [0, 1, 1023, 5000, 5001, CHUNK - 1, CHUNK + 1, CHUNK + 333, pair[0].size]
    for start, stop in pairwise(cuts):
        state.add(pair[0][start:stop], pair[1][start:stop])
    assert bytes(state.end()) == bytes(whole)


def test_joined_chunks_do_not_change_a_bit(pair, native):
    whole = native.totals(*pair, 0, pair[0].size, SETTINGS)
    parts = [
        native.totals(*pair, start, min(start + CHUNK, pair[0].size), SETTINGS)
        for start in range(0, pair[0].size, CHUNK)
    ]
    for part in parts[1:]:
        native.merge(parts[0], part)
    assert bytes(parts[0]) == bytes(whole)


def test_an_odd_address_does_not_change_a_bit():
    generator = np.random.default_rng(2)
    values = generator.standard_normal(5000).astype(ml_dtypes.bfloat16)
    memory = np.zeros(values.nbytes + 1, np.uint8)
    memory[1:] = values.view(np.uint8)
    odd = np.frombuffer(memory, np.uint8)[1:].view(ml_dtypes.bfloat16)
    assert odd.ctypes.data % 2
    assert measure_pair(odd, values[::-1].copy()) == measure_pair(values, values[::-1].copy())


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array.T,
        lambda array: array[:, 3:90],
        lambda array: array[::-1, ::2],
        lambda array: array[:, 5],
        lambda array: np.broadcast_to(array[0], (7, array.shape[1])),
    ],
    ids=["transposed", "part", "reversed", "column", "broadcast"],
)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int32])
def test_layout_does_not_change_a_bit(view, dtype, implementation):
    generator = np.random.default_rng(4)
    golden = (generator.standard_normal((700, 128)) * 5).astype(dtype)
    mine = (golden.astype(np.float32) + 0.01).astype(dtype)
    strided = view(golden), view(mine)
    copied = tuple(np.ascontiguousarray(side) for side in strided)
    assert measure_pair(*strided) == measure_pair(*copied)
    assert measure_pair(strided[0], copied[1]) == measure_pair(*copied)


def test_other_byte_order(implementation):
    golden = np.arange(1000, dtype=np.float32)
    assert measure_pair(golden.astype(">f4"), golden) == measure_pair(golden, golden)


def test_memory_mapped_files(tmp_path, pair):
    paths = [tmp_path / "golden.npy", tmp_path / "mine.npy"]
    for path, array in zip(paths, pair, strict=True):
        np.save(path, array[:300_001])
    mapped = [np.load(path, mmap_mode="r") for path in paths]
    assert measure_pair(*mapped) == measure_pair(pair[0][:300_001], pair[1][:300_001])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8])
def test_largest_element_error_agrees_with_the_plain_formula(dtype, implementation):
    generator = np.random.default_rng(6)
    golden = (generator.standard_normal(5000) * 4).astype(dtype)
    mine = golden.copy()
    mine[17] = -mine[17]
    mine[4000] = 3 * golden[4000] + np.array(2, dtype)
    g, m = golden.astype(np.float64), mine.astype(np.float64)
    expected = np.max(np.abs(m - g) / (np.abs(g) + np.sqrt(np.mean(g * g))))
    measured = measure_pair(golden, mine)
    assert measured.element_error_exact
    assert measured.element_error == pytest.approx(expected, rel=1e-6)


def test_unknown_variant_for_this_processor_is_one_clear_error(native):
    from ait_llm.metrics.native import NativeMetrics

    other = NativeMetrics(native.library._name, variant=99)
    with pytest.raises(ValueError, match="cannot run the variant"):
        other.state(np.dtype(np.float32), np.dtype(np.float32), SETTINGS)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"\[2, 3\] and \[3, 2\] differ"):
        measure_pair(np.zeros((2, 3)), np.zeros((3, 2)))
