"""FRACTAL_NZ and NC1HWC0, against element-by-element definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.core import FORMAT_FRACTAL_NZ, FORMAT_ND, DType
from ait_llm.formats.layout import (
    nc1hwc0_to_nchw,
    nchw_to_nc1hwc0,
    nd_to_nz,
    nz_c0,
    nz_storage_shape,
    nz_to_nd,
    stored_shape,
    to_nd,
)
from ait_llm.formats.names import FORMAT_NC1HWC0


def test_element_2_17_of_a_3_by_20_matrix_is_at_index_289() -> None:
    matrix = np.zeros((3, 20), dtype=np.float16)
    matrix[2, 17] = 1
    stored = nd_to_nz(matrix, 16)
    assert stored.shape == (2, 16, 16)
    assert np.flatnonzero(stored.reshape(-1)).tolist() == [289]


@settings(deadline=None)
@given(
    batch=st.integers(1, 3),
    rows=st.integers(1, 40),
    columns=st.integers(1, 70),
    c0=st.sampled_from([8, 16, 32]),
)
def test_nz_places_each_element_by_its_definition(
    batch: int, rows: int, columns: int, c0: int
) -> None:
    matrix = np.arange(1, batch * rows * columns + 1).reshape(batch, rows, columns)
    stored = nd_to_nz(matrix, c0)
    expected = np.zeros(nz_storage_shape(matrix.shape, c0), dtype=matrix.dtype)
    for b, m, n in itertools.product(range(batch), range(rows), range(columns)):
        expected[b, n // c0, m, n % c0] = matrix[b, m, n]
    assert (stored == expected).all()
    assert (nz_to_nd(stored, matrix.shape) == matrix).all()


def test_nz_without_logical_dims_keeps_the_padding() -> None:
    assert nz_to_nd(nd_to_nz(np.ones((3, 20)), 16)).shape == (16, 32)


def test_nz_of_a_vector() -> None:
    vector = np.arange(20)
    assert nz_to_nd(nd_to_nz(vector.reshape(1, 20), 16), (20,)).tolist() == vector.tolist()


@pytest.mark.parametrize("logical", [(17, 20), (3, 33), (2, 3, 20)])
def test_nz_that_does_not_hold_the_logical_dims(logical: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not hold dims"):
        nz_to_nd(nd_to_nz(np.ones((3, 20)), 16), logical)


@pytest.mark.parametrize(
    ("dtype", "c0"), [(DType.FLOAT16, 16), (DType.INT8, 32), (DType.FLOAT32, 8), (DType.INT4, 64)]
)
def test_block_row_is_32_bytes(dtype: DType, c0: int) -> None:
    assert nz_c0(dtype) == c0


@settings(deadline=None)
@given(
    images=st.integers(1, 2),
    channels=st.integers(1, 20),
    height=st.integers(1, 3),
    width=st.integers(1, 3),
)
def test_nc1hwc0_places_each_element_by_its_definition(
    images: int, channels: int, height: int, width: int
) -> None:
    shape = (images, channels, height, width)
    array = np.arange(1, np.prod(shape) + 1).reshape(shape)
    stored = nchw_to_nc1hwc0(array, 16)
    assert stored.shape == (images, -(-channels // 16), height, width, 16)
    for n, c, h, w in itertools.product(*map(range, shape)):
        assert stored[n, c // 16, h, w, c % 16] == array[n, c, h, w]
    assert (nc1hwc0_to_nchw(stored, channels) == array).all()


def test_nc1hwc0_with_too_few_channels() -> None:
    with pytest.raises(ValueError, match="do not hold 17 channels"):
        nc1hwc0_to_nchw(np.zeros((1, 1, 1, 1, 16)), 17)


def test_stored_shape_recognises_logical_dims_of_nz() -> None:
    shape = stored_shape((3, 20), FORMAT_FRACTAL_NZ, DType.FLOAT16, 512)
    assert shape == (2, 16, 16)
    with pytest.raises(ValueError, match="do not fill dims"):
        stored_shape((3, 20), FORMAT_ND, DType.FLOAT16, 512)


def test_to_nd_of_logical_dims_crops_the_padding() -> None:
    matrix = np.arange(60).reshape(3, 20)
    found = to_nd(nd_to_nz(matrix, 16), (3, 20), FORMAT_FRACTAL_NZ, DType.FLOAT16)
    assert (found == matrix).all()


def test_to_nd_of_logical_dims_without_padding_still_reorders() -> None:
    matrix = np.arange(16 * 32).reshape(16, 32)
    flat = nd_to_nz(matrix, 16).reshape(16, 32)
    assert (to_nd(flat, (16, 32), FORMAT_FRACTAL_NZ, DType.FLOAT16) == matrix).all()


def test_to_nd_of_storage_dims() -> None:
    matrix = np.arange(16 * 32).reshape(1, 16, 32)
    stored = nd_to_nz(matrix, 16)
    assert (to_nd(stored, stored.shape, FORMAT_FRACTAL_NZ, DType.FLOAT16) == matrix).all()


def test_to_nd_of_images() -> None:
    array = np.arange(16 * 6).reshape(1, 16, 2, 3)
    stored = nchw_to_nc1hwc0(array, 16)
    assert (to_nd(stored, stored.shape, FORMAT_NC1HWC0, DType.FLOAT16) == array).all()


@pytest.mark.parametrize(("format", "c0"), [(50, 16), (51, 32)])
def test_formats_with_a_block_row_in_their_name(format: int, c0: int) -> None:
    assert nz_c0(DType.FLOAT32, format) == c0
    matrix = np.arange(60, dtype=np.float32).reshape(3, 20)
    found = to_nd(nd_to_nz(matrix, c0), (3, 20), format, DType.FLOAT32)
    assert (found == matrix).all()


def test_shapes_that_no_layout_has() -> None:
    with pytest.raises(ValueError, match="needs a matrix"):
        nz_storage_shape((4,), 16)
    with pytest.raises(ValueError, match="needs 3 dims"):
        nz_to_nd(np.zeros((4, 16)))
    with pytest.raises(ValueError, match="has 5 dims"):
        nc1hwc0_to_nchw(np.zeros((4, 16)))
    with pytest.raises(ValueError, match="string elements have no size"):
        nz_c0(DType.STRING)


def test_to_nd_leaves_plain_formats_alone() -> None:
    array = np.ones((2, 3))
    assert to_nd(array, (2, 3), FORMAT_ND, DType.FLOAT64) is array


@pytest.mark.parametrize(("format", "name"), [(4, "fractal_z"), (77, "undefined")])
def test_to_nd_names_a_format_that_it_does_not_convert(format: int, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        to_nd(np.ones((2, 3)), (2, 3), format, DType.FLOAT16)


def test_to_nd_refuses_dims_that_are_not_nz() -> None:
    with pytest.raises(ValueError, match="are not those of FRACTAL_NZ"):
        to_nd(np.ones((3, 5)), (3, 5), FORMAT_FRACTAL_NZ, DType.FLOAT16)
