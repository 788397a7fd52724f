"""Converts between our types and the C structures, and carries exceptions through C calls."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_char_p, c_uint32
from typing import Any

from ait_llm.core import DType, TensorDesc
from ait_llm.hostatb.capi import MAX_DIMS, Desc, Tensor, library
from ait_llm.hostatb.native_types import NativeStatusError, NativeTensor, Reshape, Status
from ait_llm.opcheck.golden.base import Refusal, RefusedError


class _Pending(threading.local):
    """The first exception that a callback raised during the current call, per thread."""

    error: BaseException | None = None


_pending = _Pending()


@contextmanager
def failing_status(status: list[int]) -> Iterator[None]:
    """Turn an exception inside a C callback into a status; ctypes would print and drop it.

    What a golden operator refuses has the library's own status.
    """
    try:
        yield
    except BaseException as error:  # noqa: BLE001  # check() raises it after C returned
        if _pending.error is None:
            _pending.error = error
        status[0] = error.status if isinstance(error, RefusedError) else Status.RT_FAIL


def last_error() -> str:
    """Why the last call of this thread into the runtime failed."""
    text: bytes = library().hostatb_last_error()
    return text.decode(errors="replace")


def check(call: str, status: int) -> None:
    """Raise what a call into the runtime left behind.

    Raises:
        NativeStatusError: the status is a failure; its cause is what a callback raised.
    """
    cause, _pending.error = _pending.error, None
    if cause is not None and not isinstance(cause, Exception):
        raise cause  # KeyboardInterrupt and SystemExit are not failures of the operation
    if status != Status.NO_ERROR:
        reason = last_error()
        if cause is not None:
            reason = f"{reason}: {cause}" if reason else str(cause)
        raise NativeStatusError(call, status, reason) from cause


def created(call: str, handle: int | None) -> int:
    """The handle, unless the runtime returned none.

    Raises:
        NativeStatusError: it returned none.
    """
    if not handle:
        raise NativeStatusError(call, Status.INVALID_PARAM, last_error())
    return handle


def fill_desc(target: Desc, desc: TensorDesc) -> None:
    """Write a description into a C structure.

    Raises:
        RefusedError: it has too many dimensions.
    """
    if len(desc.shape) > MAX_DIMS:
        raise RefusedError(
            f"tensor of shape {desc.shape} has {len(desc.shape)} dimensions; the acceleration "
            f"library takes at most {MAX_DIMS}",
            Refusal.DIM,
        )
    target.dtype = desc.dtype.code
    target.format = desc.format
    target.ndim = len(desc.shape)
    target.dims[: len(desc.shape)] = desc.shape


# Few descriptions occur, and each many times; the bytes of the C structure identify one.
_MAX_DESCS = 65536
_descs: dict[bytes, TensorDesc] = {}


def desc_of(source: Desc) -> TensorDesc:
    """Read a description from a C structure."""
    key = bytes(source)
    desc = _descs.get(key)
    if desc is None:
        if len(_descs) >= _MAX_DESCS:
            _descs.clear()
        desc = _descs[key] = TensorDesc(
            DType.from_code(source.dtype), tuple(source.dims[: source.ndim]), source.format
        )
    return desc


def descs_of(count: int, array: Any) -> list[TensorDesc]:  # POINTER(Desc) is no type at run time
    """Read ``count`` descriptions from a C array."""
    return [desc_of(array[index]) for index in range(count)]


def tensors_of(count: int, array: Any) -> list[NativeTensor]:  # POINTER(Tensor), as above
    """Read ``count`` tensors from a C array."""
    items = (array[index] for index in range(count))
    return [NativeTensor(desc_of(item.desc), item.data or 0, item.size) for item in items]


def tensor_array(tensors: Sequence[NativeTensor]) -> ctypes.Array[Tensor]:
    """A C array of tensors."""
    array = (Tensor * len(tensors))()
    for target, tensor in zip(array, tensors, strict=True):
        fill_desc(target.desc, tensor.desc)
        target.data = tensor.pointer or None
        target.size = tensor.size
    return array


def id_array(values: Sequence[int]) -> ctypes.Array[c_uint32]:
    """A C array of tensor ids."""
    return (c_uint32 * len(values))(*values)


def name_array(names: Sequence[str] | None) -> ctypes.Array[c_char_p] | None:
    """A C array of names, or NULL."""
    return None if names is None else (c_char_p * len(names))(*(name.encode() for name in names))


def reshape_callback(reshape: Reshape) -> Callable[[Any, int, Any], int]:
    """The C callback of a reshape function."""

    def on_reshape(_: Any, index: int, desc: Any) -> int:
        status = [int(Status.NO_ERROR)]
        with failing_status(status):
            fill_desc(desc[0], reshape(index, desc_of(desc[0])))
        return status[0]

    return on_reshape
