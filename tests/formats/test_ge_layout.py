"""Device layouts to logical dims, element by element."""

import numpy as np
import pytest
from ge_dump_files import FRACTAL_NZ, FRACTAL_Z, NC1HWC0, ND, NDC1HWC0, nz
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.formats.ge_layout import to_logical


def _numbered(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)


def _blocked_channels(image: np.ndarray, c0: int) -> np.ndarray:
    """NCHW to NC1HWC0 by the index formula."""
    n, c, h, w = image.shape
    stored = np.zeros((n, -(-c // c0), h, w, c0), image.dtype)
    for i, j, k, m in np.ndindex(*image.shape):
        stored[i, j // c0, k, m, j % c0] = image[i, j, k, m]
    return stored


def _fractal_z(weight: np.ndarray, c0: int) -> np.ndarray:
    """NCHW to FRACTAL_Z by the index formula."""
    n, c, h, w = weight.shape
    stored = np.zeros((-(-c // c0) * h * w, -(-n // 16), 16, c0), weight.dtype)
    for i, j, k, m in np.ndindex(*weight.shape):
        stored[(j // c0 * h + k) * w + m, i // 16, i % 16, j % c0] = weight[i, j, k, m]
    return stored


@pytest.mark.parametrize(
    ("shape", "c0"),
    [((3, 20), 16), ((2, 5, 7, 40), 16), ((40,), 16), ((4, 33), 32), ((17, 9), 8), ((1, 1), 16)],
    ids=str,
)
def test_fractal_nz(shape: tuple[int, ...], c0: int) -> None:
    matrix = _numbered(*shape)
    stored = nz(matrix, c0)
    found = to_logical(stored.reshape(-1), stored.shape, FRACTAL_NZ, shape)
    np.testing.assert_array_equal(found, matrix)


def test_place_of_an_element_in_fractal_nz() -> None:
    flat = np.zeros(512, np.float16)
    flat[289] = 1
    found = to_logical(flat, (2, 1, 16, 16), FRACTAL_NZ, (3, 20))
    assert list(zip(*np.nonzero(found), strict=True)) == [(2, 17)]


@given(st.lists(st.integers(1, 4), max_size=2), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_fractal_nz_of_any_dims(batch: list[int], rows: int, columns: int) -> None:
    matrix = _numbered(*batch, rows, columns)
    stored = nz(matrix, 16)
    found = to_logical(stored.reshape(-1), stored.shape, FRACTAL_NZ, matrix.shape)
    np.testing.assert_array_equal(found, matrix)


@pytest.mark.parametrize("channels", [3, 16, 17])
def test_nc1hwc0_in_both_orders(channels: int) -> None:
    image = _numbered(2, channels, 5, 4)
    stored = _blocked_channels(image, 16)
    found = to_logical(stored.reshape(-1), stored.shape, NC1HWC0, image.shape)
    np.testing.assert_array_equal(found, image)
    last = image.transpose(0, 2, 3, 1)
    found = to_logical(stored.reshape(-1), stored.shape, NC1HWC0, last.shape)
    np.testing.assert_array_equal(found, last)


def test_recorded_order_decides_where_both_fit() -> None:
    image = _numbered(1, 16, 16, 16)
    stored = _blocked_channels(image, 16)
    flat = stored.reshape(-1)
    plain = to_logical(flat, stored.shape, NC1HWC0, image.shape)
    np.testing.assert_array_equal(plain, image)
    last = to_logical(flat, stored.shape, NC1HWC0, image.shape, origin=1)
    np.testing.assert_array_equal(last, image.transpose(0, 2, 3, 1))


def test_ndc1hwc0() -> None:
    volume = _numbered(2, 3, 5, 4, 6)  # N, C, D, H, W
    stored = np.stack([_blocked_channels(volume[:, :, d], 16) for d in range(5)], axis=1)
    found = to_logical(stored.reshape(-1), stored.shape, NDC1HWC0, volume.shape)
    np.testing.assert_array_equal(found, volume)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 1, 0), (0, 2, 3, 1)], ids=str)
def test_fractal_z_in_the_order_of_the_logical_dims(order: tuple[int, ...]) -> None:
    weight = _numbered(20, 18, 3, 2)
    stored = _fractal_z(weight, 16)
    wanted = weight.transpose(order)
    found = to_logical(stored.reshape(-1), stored.shape, FRACTAL_Z, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


def test_3_by_3_fractal_z() -> None:
    weight = _numbered(3, 3, 3, 3)
    stored = _fractal_z(weight, 16)
    found = to_logical(stored.reshape(-1), stored.shape, FRACTAL_Z, weight.shape)
    np.testing.assert_array_equal(found, weight)


@pytest.mark.parametrize(
    ("shape", "format", "logical", "groups", "reason"),
    [
        ((2, 1, 16, 16), FRACTAL_NZ, (3, 40), 0, "not those of FRACTAL_NZ"),
        ((2, 1, 16, 16), FRACTAL_NZ, (2, 3, 20), 0, "not those of FRACTAL_NZ"),
        ((2, 1, 16, 16), FRACTAL_NZ, None, 0, "not the logical dims"),
        ((1, 2, 4, 4, 16), NC1HWC0, (1, 3, 4, 4), 0, "not those of NC1HWC0"),
        ((9, 1, 16, 16), FRACTAL_Z, (3, 3, 3, 3), 2, "of 2 groups .* is not converted"),
        ((9, 1, 16, 16), FRACTAL_Z, (3, 30, 3, 3), 1, "not those of FRACTAL_Z"),
        ((2, 0, 16, 16), FRACTAL_NZ, (3, 20), 0, "not those of fractal_nz"),
        ((2, 1, 16, 16), FRACTAL_NZ, (-1, 20), 0, "not the logical dims"),
        ((4, 4), 28, (4, 4), 0, r"fractal_zz .* is not converted"),
    ],
)
def test_dims_that_do_not_belong_together(
    shape: tuple[int, ...],
    format: int,
    logical: tuple[int, ...] | None,
    groups: int,
    reason: str,
) -> None:
    with pytest.raises(ValueError, match=reason):
        to_logical(np.zeros(int(np.prod(shape))), shape, format, logical, groups=groups)


def test_plain_layout_is_a_view_in_logical_dims() -> None:
    flat = np.arange(6)
    found = to_logical(flat, (6,), ND, (2, 3))
    assert found.shape == (2, 3)
    assert np.shares_memory(found, flat)
    assert to_logical(flat, (6,), ND, (7, 3)).shape == (6,)


def test_empty_tensor_of_a_private_layout() -> None:
    assert to_logical(np.zeros(0), (0, 1, 16, 0), FRACTAL_NZ, (3, 0)).shape == (3, 0)


def test_logical_dims_of_unknown_size_are_not_taken() -> None:
    assert to_logical(np.arange(2), (2,), ND, (-1, -2)).shape == (2,)
