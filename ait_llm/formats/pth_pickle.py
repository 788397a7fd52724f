"""The pickle in a ``.pth`` file, read as data: no name in it is looked up, no code can run.

``torch.save`` describes tensors with about thirty of pickle's instructions and a handful of names.
This interpreter knows those and refuses the rest. It also does not have the weaknesses that
Python's own unpickler keeps even with a list of allowed names, such as reserving gigabytes for a
slot number that a damaged file makes up.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

from ait_llm.core import DType

_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_BY_NAME = {member.torch_name: member for member in DType if member.torch_name is not None}
_MAX_RANK = 32
_MAX_COUNT = 2**63 - 1
_SMALL = 1024
_MARK = object()


class UnexpectedPickleError(ValueError):
    """The pickle holds something else than tensors and plain containers."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the pickle describes it.

    Attributes:
        dtype: element type.
        shape: dims.
        strides: in elements.
        storage: name of the record with the bytes.
        first: index of the first element within the storage.
        storage_bytes: how large the storage is.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: str
    first: int
    storage_bytes: int


@dataclass(frozen=True, slots=True)
class _Global:
    """A name that the pickle mentions."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    """A storage record; ``dtype`` is None for one of plain bytes."""

    dtype: DType | None
    key: str
    count: int


def read_tensor_pickle(data: bytes) -> Any:
    """The value that the pickle describes: :class:`StoredTensor` or containers of such.

    The result is shared between calls and must not be changed.

    Raises:
        UnexpectedPickleError: it is damaged, or needs more than that.
    """
    return _read(data) if len(data) > _SMALL else _read_small(data)


@functools.lru_cache(maxsize=1024)
def _read_small(data: bytes) -> Any:
    """Files of tensors of one type and shape hold the same pickle."""
    return _read(data)


def _read(data: bytes) -> Any:
    try:
        return _Interpreter(data).run()
    except (IndexError, KeyError, TypeError, ValueError, struct.error, OverflowError) as error:
        raise UnexpectedPickleError(str(error)) from None


class _Interpreter:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, stack, memo = self.data, self.stack, self.memo
        while True:
            code = data[self.at]
            self.at += 1
            if code == 0x71:  # BINPUT
                memo[self._number(1)] = stack[-1]
            elif code == 0x68:  # BINGET
                stack.append(memo[self._number(1)])
            elif code == 0x4B:  # BININT1
                stack.append(self._number(1))
            elif code == 0x28:  # MARK
                stack.append(_MARK)
            elif code == 0x58:  # BINUNICODE
                stack.append(self._text(4))
            elif code == 0x63:  # GLOBAL
                stack.append(_Global(self._line(), self._line()))
            elif 0x85 <= code <= 0x87:  # TUPLE1 to TUPLE3
                stack.append(tuple(self._pop(code - 0x84)))
            elif code == 0x2E:  # STOP
                [result] = stack
                return result
            else:
                self._less_frequent(code)

    def _less_frequent(self, code: int) -> None:
        stack, memo = self.stack, self.memo
        if code == 0x74:  # TUPLE
            stack.append(tuple(self._since_mark()))
        elif code == 0x52:  # REDUCE
            function, arguments = self._pop(2)
            stack.append(_call(function, arguments))
        elif code == 0x51:  # BINPERSID
            stack.append(_storage(stack.pop()))
        elif code in (0x88, 0x89):  # NEWTRUE, NEWFALSE
            stack.append(code == 0x88)
        elif code == 0x4E:  # NONE
            stack.append(None)
        elif code in (0x29, 0x5D, 0x7D):  # EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT
            stack.append({0x29: (), 0x5D: [], 0x7D: {}}[code])
        elif code == 0x4D:  # BININT2
            stack.append(self._number(2))
        elif code == 0x4A:  # BININT
            stack.append(int.from_bytes(self._take(4), "little", signed=True))
        elif code == 0x8A:  # LONG1
            stack.append(int.from_bytes(self._take(self._number(1)), "little", signed=True))
        elif code == 0x47:  # BINFLOAT
            stack.append(struct.unpack(">d", self._take(8))[0])
        elif code == 0x80:  # PROTO
            self._number(1)
        elif code == 0x95:  # FRAME
            self._take(8)
        elif code == 0x72:  # LONG_BINPUT
            memo[self._number(4)] = stack[-1]
        elif code == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif code == 0x6A:  # LONG_BINGET
            stack.append(memo[self._number(4)])
        elif code == 0x8C:  # SHORT_BINUNICODE
            stack.append(self._text(1))
        elif code == 0x93:  # STACK_GLOBAL
            module, name = self._pop(2)
            stack.append(_Global(module, name))
        else:
            self._fill(code)

    def _fill(self, code: int) -> None:
        stack = self.stack
        if code in (0x61, 0x65):  # APPEND, APPENDS
            items = self._since_mark() if code == 0x65 else self._pop(1)
            _expect(stack[-1], list).extend(items)
        elif code in (0x73, 0x75):  # SETITEM, SETITEMS
            items = self._since_mark() if code == 0x75 else self._pop(2)
            if not all(isinstance(key, str | int | float | None) for key in items[::2]):
                raise UnexpectedPickleError("a key is not a plain value")
            _expect(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
        elif code == 0x62:  # BUILD: attributes of a container, such as a state dict's metadata
            stack.pop()
            _expect(stack[-1], dict)
        else:
            raise UnexpectedPickleError(f"instruction {code:#x}")

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise UnexpectedPickleError("cut off")
        part = self.data[self.at : end]
        self.at = end
        return part

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _text(self, size: int) -> str:
        return self._take(self._number(size)).decode()

    def _line(self) -> str:
        end = self.data.index(b"\n", self.at)
        line = self.data[self.at : end].decode()
        self.at = end + 1
        return line

    def _pop(self, count: int) -> list[Any]:
        items = self.stack[-count:]
        if len(items) < count or any(item is _MARK for item in items):
            raise UnexpectedPickleError("the stack is too short")
        del self.stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        for start in range(len(self.stack) - 1, -1, -1):
            if self.stack[start] is _MARK:
                items = self.stack[start + 1 :]
                del self.stack[start:]
                return items
        raise UnexpectedPickleError("no mark")


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise UnexpectedPickleError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _storage(record: Any) -> _Storage:
    """The storage of a persistent id: ``("storage", type, key, location, number of elements)``."""
    kind, storage, key, _, count = record
    if kind != "storage" or type(key) is not str or not _is_count(count):
        raise UnexpectedPickleError("a damaged storage record")
    if type(storage) is not _Global or storage.module not in ("torch", "torch.storage"):
        raise UnexpectedPickleError("an unknown kind of storage")
    if storage.name == "UntypedStorage":
        return _Storage(None, key, count)
    return _Storage(_BY_NAME[_STORAGES[storage.name]], key, count)


def _call(function: Any, arguments: Any) -> Any:
    if type(function) is not _Global or type(arguments) is not tuple:
        raise UnexpectedPickleError("a call of something that is no function")
    name = f"{function.module}.{function.name}"
    if name in ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"):
        _refuse_metadata(arguments[6:])
        return _tensor(*arguments[:4], dtype=None)
    if name == "torch._utils._rebuild_tensor_v3":
        _refuse_metadata(arguments[7:])
        return _tensor(*arguments[:4], dtype=arguments[6])
    if name == "torch._utils._rebuild_parameter":
        return _expect(arguments[0], StoredTensor)
    if name == "collections.OrderedDict" and not arguments:
        return {}
    if name == "torch.Size":
        return _expect(arguments[0], tuple)
    raise UnexpectedPickleError(f"it needs {name}")


def _refuse_metadata(rest: tuple[Any, ...]) -> None:
    """A view that is conjugated or negated says so behind the other arguments."""
    if any(rest):
        raise UnexpectedPickleError("a tensor with properties of its own")


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *, dtype: Any) -> StoredTensor:
    _expect(storage, _Storage)
    for numbers in (shape, strides):
        if len(_expect(numbers, tuple)) > _MAX_RANK or not all(map(_is_count, numbers)):
            raise UnexpectedPickleError("dims are not whole numbers")
    if not _is_count(first) or len(shape) != len(strides):
        raise UnexpectedPickleError("a damaged tensor")
    if type(dtype) is _Global and dtype.module == "torch":
        dtype = _BY_NAME[dtype.name]
    elif dtype is None and storage.dtype is not None:
        dtype = storage.dtype
    else:
        raise UnexpectedPickleError("no element type")
    width = 1 if storage.dtype is None else storage.dtype.bits // 8
    return StoredTensor(dtype, shape, strides, storage.key, first, storage.count * width)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_COUNT
