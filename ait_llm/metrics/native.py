"""The native kernel, where the library with it is installed.

The library is optional: :mod:`ait_llm.metrics.numpy_pass` computes the same, several hundred
times slower. ``AIT_LLM_METRICS`` (``portable``, ``avx2``, ``avx512`` or ``numpy``) chooses another
implementation than the best for this processor.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import ait_llm
from ait_llm.core import DType
from ait_llm.core.kernels import ELEMENTS
from ait_llm.formats.elements import Array
from ait_llm.metrics.blocks import is_direct, pieces
from ait_llm.metrics.numpy_pass import Settings, ordinals
from ait_llm.metrics.precision import SIGNIFICAND_BITS, SMALLEST
from ait_llm.metrics.totals import Totals

_LIBRARY = "libait_metrics.so"
_DIRECTORY_VARIABLE = "AIT_LLM_LIB_DIR"
_VARIANT_VARIABLE = "AIT_LLM_METRICS"
_VARIANTS = {"": 0, "portable": 1, "avx2": 2, "avx512": 3}

# AIT_PAIR_CHUNK of ait_metrics.h: totals of stretches of this many elements, joined in order, are
# the totals of the whole to the last bit.
CHUNK = 1 << 20
_BYTE = 10  # AIT_PAIR_BYTE
_PIECE = 1 << 16  # elements of a strided array that are copied at once


class _PairSettings(ctypes.Structure):
    _fields_ = (
        ("golden_type", ctypes.c_int32),
        ("my_type", ctypes.c_int32),
        ("golden_table", ctypes.c_void_p),
        ("my_table", ctypes.c_void_p),
        ("ulp_bits", ctypes.c_int32),
        ("ulp_exponent", ctypes.c_int32),
        ("ulp_last", ctypes.c_int64),
        ("ulp_limit", ctypes.c_uint64),
        ("rtol", ctypes.c_double),
        ("atol", ctypes.c_double),
        ("variant", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


class PairState:
    """A pass in progress: hand over any pieces of a pair in order, then ask for the totals.

    The totals do not depend on how the pair is cut into pieces.

    Args:
        native: the library.
        golden, mine: element types of the pieces.
        settings: what is counted.
    """

    def __init__(
        self,
        native: NativeMetrics,
        golden: np.dtype[Any],
        mine: np.dtype[Any],
        settings: Settings,
    ) -> None:
        self._native = native
        self._memory = np.empty(native.state_size + 64, np.uint8)
        address = address_of(self._memory)
        self._state = ctypes.c_void_p(address + -address % 64)
        self.settings = native.pair_settings(golden, mine, settings)
        self._check(native.library.ait_pair_begin(self._state, ctypes.byref(self.settings)))

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise ValueError(
                "the native metrics do not know these element types"
                if code == 1
                else f"this processor cannot run the variant that {_VARIANT_VARIABLE} names"
            )

    def add(self, golden: Array, mine: Array) -> None:
        """Add contiguous pieces of the same length, which follow those added before."""
        self._native.library.ait_pair_add(
            self._state, address_of(golden), address_of(mine), golden.size
        )

    def end(self) -> Totals:
        """The totals of all that was added; nothing may be added afterwards."""
        totals = Totals()
        self._native.library.ait_pair_end(self._state, ctypes.byref(totals))
        return totals


class NativeMetrics:
    """The functions of one loaded library; they run without the interpreter lock.

    Args:
        path: the library.
        variant: which instruction set, 0 for the best.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it is not the library that it should be.
    """

    def __init__(self, path: Path, variant: int = 0) -> None:
        self.library = ctypes.CDLL(str(path))
        self._variant = variant
        self.pair_settings = functools.lru_cache(maxsize=256)(self._pair_settings)
        pointer, count = ctypes.c_void_p, ctypes.c_uint64
        self.library.ait_pair_state_size.argtypes = ()
        self.library.ait_pair_state_size.restype = count
        self.state_size = int(self.library.ait_pair_state_size())
        self.library.ait_pair_begin.argtypes = (pointer, pointer)
        self.library.ait_pair_add.argtypes = (pointer, pointer, pointer, count)
        self.library.ait_pair_add.restype = None
        self.library.ait_pair_end.argtypes = (pointer, pointer)
        self.library.ait_pair_end.restype = None
        self.library.ait_pair_join.argtypes = (pointer, pointer)
        self.library.ait_pair_join.restype = None
        self.library.ait_pair_element_error.argtypes = (
            pointer,
            pointer,
            pointer,
            count,
            ctypes.c_double,
        )
        self.library.ait_pair_element_error.restype = ctypes.c_double

    def knows(self, golden: np.dtype[Any], mine: np.dtype[Any], ulp: DType | None) -> bool:
        """True if the kernel reads both types and counts ULPs in that one."""
        return (
            _code(golden) is not None and _code(mine) is not None and ulp is not DType.FLOAT8_E8M0
        )

    def state(self, golden: np.dtype[Any], mine: np.dtype[Any], settings: Settings) -> PairState:
        """A pass to which pieces can be added."""
        return PairState(self, golden, mine, settings)

    def totals(
        self, golden: Array, mine: Array, start: int, stop: int, settings: Settings
    ) -> Totals:
        """Totals of elements ``start`` to ``stop`` of two arrays of any layout.

        Args:
            golden, mine: arrays of the same shape.
            start, stop: flat indices; ``start`` a multiple of :data:`CHUNK`.
            settings: what is counted.
        """
        state = self.state(golden.dtype, mine.dtype, settings)
        if stop - start == golden.size and is_direct(golden) and is_direct(mine):
            state.add(golden, mine)
            return state.end()
        for g, m in pieces(golden, mine, start, stop, self._piece(golden, mine, stop - start)):
            state.add(g, m)
        return state.end()

    def merge(self, into: Totals, following: Totals) -> None:
        """Add the totals of the elements that follow directly."""
        self.library.ait_pair_join(ctypes.byref(into), ctypes.byref(following))

    def element_error(self, golden: Array, mine: Array, rms: float) -> float:
        """Largest ``abs(m - g) / (abs(g) + rms)`` of the places finite on both sides."""
        settings = self.pair_settings(golden.dtype, mine.dtype, Settings(None, 0, 0.0, 0.0))
        largest = 0.0
        for g, m in pieces(golden, mine, 0, golden.size, self._piece(golden, mine, golden.size)):
            error = self.library.ait_pair_element_error(
                ctypes.byref(settings), address_of(g), address_of(m), g.size, rms
            )
            largest = max(largest, float(error))
        return largest

    @staticmethod
    def _piece(golden: Array, mine: Array, whole: int) -> int:
        return max(1, whole) if is_direct(golden) and is_direct(mine) else _PIECE

    def _pair_settings(
        self, golden: np.dtype[Any], mine: np.dtype[Any], settings: Settings
    ) -> _PairSettings:
        """The settings as the library wants them, the same object for the same arguments."""
        ulp = _ulp_settings(settings.ulp)
        tables = _table(golden), _table(mine)  # they live on in their cache
        addresses = [None if table is None else address_of(table) for table in tables]
        return _PairSettings(
            _code(golden),
            _code(mine),
            *addresses,
            *ulp,
            settings.ulp_limit,
            settings.rtol,
            settings.atol,
            self._variant,
            0,
        )


def address_of(array: Array) -> int:
    """Where the elements begin; ``array.ctypes`` makes an object of its own each time."""
    address: int = array.__array_interface__["data"][0]
    return address


@functools.cache
def _code(dtype: np.dtype[Any]) -> int | None:
    if dtype.itemsize == 1 and dtype.kind in "biuVf":
        return _BYTE
    return ELEMENTS.get(dtype.newbyteorder("=").name)


@functools.cache
def _table(dtype: np.dtype[Any]) -> NDArray[np.float32] | None:
    if _code(dtype) != _BYTE:
        return None
    codes = np.arange(256, dtype=np.uint8)
    if dtype == np.bool_:
        truth: NDArray[np.float32] = (codes != 0).astype(np.float32)
        return truth
    with np.errstate(invalid="ignore"):  # a signalling NaN among the codes
        values: NDArray[np.float32] = codes.view(dtype).astype(np.float32)
    return values


@functools.cache
def _ulp_settings(dtype: DType | None) -> tuple[int, int, int]:
    """Bits of the significand, smallest normal exponent, ordinal of what is too large."""
    if dtype is None:
        return -1, 0, 0
    bits = SIGNIFICAND_BITS[dtype]
    exponent = int(np.log2(SMALLEST[dtype])) + bits
    largest = ml_dtypes.finfo(dtype.numpy_type).max  # type: ignore[no-untyped-call]
    beyond = np.array([np.inf]) if bits > 10 else np.array([float(largest)]) * 2
    return bits, exponent, int(ordinals(beyond, dtype)[0])


@functools.cache
def _load(variant: int) -> NativeMetrics | None:
    override = os.environ.get(_DIRECTORY_VARIABLE)
    # An editable install has two entries: the sources, and site-packages with what was built.
    folders = [Path(entry) / "lib" for entry in ait_llm.__path__]
    for folder in ([Path(override)] if override else []) + folders:
        path = folder / _LIBRARY
        if path.is_file():
            try:
                return NativeMetrics(path, variant)
            except (OSError, AttributeError):
                continue  # built for another machine or an older version
    return None


def native_metrics() -> NativeMetrics | None:
    """The installed library; None if there is none that can be loaded, or it is not wanted."""
    wanted = os.environ.get(_VARIANT_VARIABLE, "")
    if wanted == "numpy":
        return None
    return _load(_VARIANTS.get(wanted, 0))
