"""A store in memory that lies, breaks off and refuses as a test wants it to."""

from __future__ import annotations

from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class OddFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """``odd://``: as ``memory://``, with faults.

    Attributes:
        fault: raised for whatever is read.
        lost: bytes that do not arrive, of each file.
        names: the listing says these of the files of the same sizes.
        written: raised when a file of that name is written.
        calls: how often files were fetched, by key; ranges count too.
    """

    protocol = "odd"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    fault: ClassVar[Exception | None] = None
    lost: ClassVar[int] = 0
    names: ClassVar[dict[str, str]] = {}
    written: ClassVar[dict[str, Exception]] = {}
    calls: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        found: str = MemoryFileSystem._strip_protocol(path.replace("odd://", "memory://"))
        return found

    def info(self, path: str, **more: Any) -> Any:
        """As memory says."""
        if self.fault is not None:
            raise self.fault
        return super().info(path, **more)

    def find(self, path: str, *args: Any, **more: Any) -> Any:
        """The listing, with other names."""
        found = super().find(path, *args, **more)
        if not more.get("detail"):
            return found
        return {self.names.get(key, key): about for key, about in found.items()}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        """The bytes, or most of them."""
        self.calls.append(path)
        if self.fault is not None:
            raise self.fault
        data: bytes = super().cat_file(path, start, end, **more)
        return data[: len(data) - self.lost]

    def get_file(self, rpath: str, lpath: str, *args: Any, **more: Any) -> None:
        """The file, or most of it."""
        with open(lpath, "wb") as file:  # noqa: PTH123
            file.write(self.cat_file(rpath))

    def put_file(self, lpath: str, rpath: str, *args: Any, **more: Any) -> None:
        """Write, or refuse to."""
        error = self.written.get(rpath.rpartition("/")[2])
        if error is not None:
            raise error
        super().put_file(lpath, rpath, *args, **more)

    @classmethod
    def reset(cls) -> None:
        """Forget all files and faults."""
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.fault, cls.lost = None, 0
        cls.names, cls.written = {}, {}
        cls.calls.clear()


fsspec.register_implementation("odd", OddFileSystem, clobber=True)
