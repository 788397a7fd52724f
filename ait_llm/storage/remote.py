"""The other side: opening a file system by URL, listing what is there, and what goes wrong."""

from __future__ import annotations

import datetime
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.core.optional import import_optional
from ait_llm.errors import FormatError, MissingDependencyError, UsageError
from ait_llm.storage.addresses import redacted, without_secrets

# Where a protocol needs a package beside fsspec: the extra or, for others, fsspec's own words.
_EXTRAS = {"s3": "s3", "s3a": "s3"}
_NO_BUCKET = "specified bucket does not exist"  # S3's words
_MAX_NAME_BYTES = 255  # what Linux file systems take


class StorageError(FormatError):
    """Something at a URL cannot be read or written.

    Args:
        url: the address; its secrets are not repeated.
        reason, advice: as in :class:`FormatError`.
    """

    def __init__(self, url: str, reason: str, advice: str = "") -> None:
        super().__init__(redacted(url), reason, advice)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a listing.

    Attributes:
        key: what its file system calls it.
        name: its path below the folder that was listed, ``/`` between the parts.
        size: in bytes.
        changed: time of the last change in ns, 0 if unknown.
    """

    key: str
    name: str
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies at a URL.

    Attributes:
        is_file: the URL is that of a file, which is the only one then.
        files: all files below it.
    """

    is_file: bool
    files: tuple[RemoteFile, ...]


def open_filesystem(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL and the path within.

    Raises:
        MissingDependencyError: a package for this protocol is not installed.
        UsageError: no such protocol.
        StorageError: the URL cannot be used.
    """
    core = import_optional("fsspec", redacted(url), "remote").core
    protocol = url.rpartition("::")[2].partition(":")[0].lower()
    try:
        filesystem, path = core.url_to_fs(url)
    except ImportError as error:
        if (extra := _EXTRAS.get(protocol)) is not None:
            how = f"run: pip install 'ait-llm[{extra}]'"
        else:
            how = first_line(error)
        raise MissingDependencyError(
            f"{redacted(url)} needs a Python package that is not installed; {how}"
        ) from None
    except ValueError as error:
        if "rotocol not known" in str(error):
            raise UsageError(
                f"{redacted(url)}: no storage of the protocol {protocol!r} is known to fsspec"
            ) from None
        raise explained(url, error) from None
    except Exception as error:  # noqa: BLE001  each storage raises its own types
        raise explained(url, error) from None
    return filesystem, str(path)


def list_remote(filesystem: Any, path: str, url: str, *, depth: int | None = None) -> Listing:
    """Everything below a folder, or one file.

    Args:
        filesystem: of fsspec.
        path: the folder or file within.
        url: what users call it.
        depth: how many levels of folders to look into, all when None.

    Raises:
        StorageError: it cannot be listed, holds nothing, or holds names that cannot be local ones.
    """
    try:
        filesystem.invalidate_cache()  # a run may have written since
        about = filesystem.info(path)
        if about["type"] != "directory":
            name = path.rstrip("/").rpartition("/")[2]
            return Listing(True, (_file(path, name, about, url),))
        found: Mapping[str, Any] = filesystem.find(path, maxdepth=depth, detail=True)
    except StorageError:
        raise
    except Exception as error:  # noqa: BLE001  each storage raises its own types
        raise explained(url, error) from None
    root = filesystem._strip_protocol(path).rstrip("/")
    root += "/" if root else ""  # that of an archive is empty
    files = []
    for key, about in found.items():
        if about.get("type") == "directory":
            continue
        if not key.startswith(root):
            raise StorageError(url, f"its listing names {key!r}, which lies elsewhere")
        name = key[len(root) :]
        if name.endswith("/") and not about.get("size"):
            continue  # what consoles of object stores make for an empty folder
        files.append(_file(key, name, about, url))
    if not files:
        raise StorageError(url, "holds no file")
    _check_tree([file.name for file in files], url)
    return Listing(False, tuple(files))


def explained(url: str, error: BaseException) -> StorageError:
    """An error of any storage library in one sentence."""
    names = {kind.__name__ for kind in type(error).__mro__}
    told = without_secrets(first_line(error), url)
    if isinstance(error, FileNotFoundError):
        missing = "its bucket does not exist" if no_bucket(error) else "no such file or folder"
        return StorageError(url, missing, "Check the address")
    if isinstance(error, PermissionError):
        return StorageError(
            url, f"access is refused: {told}", "Check the credentials in the environment"
        )
    if names & {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}:
        return StorageError(
            url,
            "no credentials were found",
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return StorageError(url, "its copy does not fit on the disk", "Set TMPDIR to a larger one")
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return StorageError(
            url, "its copy is larger than files may be here", "Raise the limit (ulimit -f)"
        )
    broken = {
        "ConnectionError",
        "HTTPClientError",
        "ClientError",
        "TimeoutError",
        "FSTimeoutError",
        "IncompleteReadError",
        "ResponseStreamingError",
    }
    if names & broken:
        return StorageError(
            url, f"the connection failed: {told}", "Check the network and the address of the store"
        )
    return StorageError(url, f"the store says: {told}")


def no_bucket(error: BaseException) -> bool:
    """True if an object store has not even the bucket."""
    return _NO_BUCKET in str(error).lower()


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _file(key: str, name: str, about: Mapping[str, Any], url: str) -> RemoteFile:
    size = about.get("size")
    if not isinstance(size, int) or size < 0:
        raise StorageError(url, f"the store does not say how large {name!r} is")
    _check_name(name, url)
    return RemoteFile(key, name, size, _changed(about))


def _check_name(name: str, url: str) -> None:
    """Raise for a name that would lead out of the folder of copies, or cannot be a local one."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise StorageError(url, f"holds the name {name!r}, which leads to another folder")
    if "\0" in name:
        raise StorageError(url, f"holds the name {name!r}, which no file can have")
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        raise StorageError(url, f"holds the name {name!r}, which is no text") from None
    if longest > _MAX_NAME_BYTES:
        raise StorageError(url, f"holds the name {name[:80]!r}…, which is too long for a file")


def _check_tree(names: Sequence[str], url: str) -> None:
    """Raise if a name is that of a file and of a folder, which only object stores can hold."""
    known = set(names)
    folders: set[str] = set()
    for name in names:
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    if both := folders & known:
        raise StorageError(url, f"holds {min(both)!r} both as a file and as a folder")


def _changed(about: Mapping[str, Any]) -> int:
    for field in ("LastModified", "mtime", "last_modified", "updated", "created"):
        value = about.get(field)
        if isinstance(value, datetime.datetime):
            return max(0, int(value.timestamp() * 1e6) * 1000)
        if isinstance(value, int | float) and value > 0:
            return int(value * 1e6) * 1000
    return 0
