"""Results for a URL: written to a local folder first, sent when they are complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ait_llm.errors import UsageError
from ait_llm.naming import forget_place, name_place
from ait_llm.storage.addresses import check_characters, redacted
from ait_llm.storage.remote import StorageError, explained, no_bucket, open_filesystem

_PREFIX = "ait-results-"
_THREADS = 8
_NAMED = 3  # files in a message


class OutputFolder:
    """A local folder whose files belong to a URL.

    Args:
        url: of a folder; it need not exist.

    Attributes:
        folder: the local folder; messages call it by the URL until it is sent.

    Raises:
        StorageError: the URL cannot be reached.
        MissingDependencyError: a package for its protocol is not installed.
        UsageError: no such protocol.
    """

    def __init__(self, url: str) -> None:
        check_characters(url)
        self.url = url.rstrip("/")
        self._filesystem, path = open_filesystem(self.url)
        self._path = path.rstrip("/")
        self._present = self._names()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        name_place(str(self.folder), redacted(self.url))

    def send(self, *, replace: bool = False) -> int:
        """Send all files, and delete the local ones if all have arrived.

        Args:
            replace: also where a file of that name is there already.

        Returns:
            How many files were sent.

        Raises:
            UsageError: files of these names are there already; nothing was sent.
            StorageError: not all files arrived; the message says which, and where they are.
        """
        names = sorted(
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        )
        there = sorted(self._present & set(names))
        if there and not replace:
            self._keep()
            raise UsageError(
                f"{redacted(self.url)} holds {_listed(there)} already; nothing was sent, the "
                f"results are in {self.folder}"
            )
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ait-send") as pool:
            errors = dict(zip(names, pool.map(self._send, names), strict=True))
        failed = {name: error for name, error in errors.items() if error is not None}
        if failed:
            self._keep()
            first = next(iter(failed.values()))
            raise StorageError(
                self.url,
                f"{_listed(list(failed))} could not be sent ({first.reason})",
                f"All results are in {self.folder}",
            )
        self.discard()
        return len(names)

    def keep(self) -> Path | None:
        """Give up sending; the local folder if it holds anything, which is kept then."""
        if not any(path.is_file() for path in self.folder.rglob("*")):
            self.discard()
            return None
        self._keep()
        return self.folder

    def discard(self) -> None:
        """Delete the local files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _keep(self) -> None:
        forget_place(str(self.folder))  # from now on it is looked for

    def _names(self) -> set[str]:
        try:
            self._filesystem.invalidate_cache()
            found = self._filesystem.find(self._path)
        except FileNotFoundError as error:
            if no_bucket(error):
                raise explained(self.url, error) from None
            return set()  # the folder is new
        except Exception as error:  # noqa: BLE001  each storage raises its own types
            raise explained(self.url, error) from None
        start = self._path + "/"
        return {key[len(start) :] for key in found if key.startswith(start)}

    def _send(self, name: str) -> StorageError | None:
        """Send one file; a part of it is taken away again."""
        local, key = self.folder / name, f"{self._path}/{name}"
        url = f"{self.url}/{name}"
        try:
            try:
                self._filesystem.put_file(os.fspath(local), key)
            except FileNotFoundError:  # stores that have folders
                self._filesystem.makedirs(key.rpartition("/")[0], exist_ok=True)
                self._filesystem.put_file(os.fspath(local), key)
            self._filesystem.invalidate_cache(key)
            arrived, size = self._filesystem.size(key), local.stat().st_size
            if arrived == size:
                return None
            error = StorageError(url, f"{arrived:,} of {size:,} bytes arrived")
        except Exception as problem:  # noqa: BLE001  each storage raises its own types
            error = explained(url, problem)
        if name not in self._present:
            with contextlib.suppress(Exception):
                self._filesystem.rm_file(key)
        return error


def output_folder(url: str) -> OutputFolder:
    """A local folder for results that :meth:`OutputFolder.send` sends to a URL.

    Raises:
        StorageError, MissingDependencyError, UsageError: as :class:`OutputFolder`.
    """
    return OutputFolder(url)


def _listed(names: list[str]) -> str:
    named = ", ".join(names[:_NAMED])
    return named + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
