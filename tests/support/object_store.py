"""Where tests put folders to read them from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

BUCKET = "captures"


@dataclass(frozen=True)
class Store:
    """Somewhere that folders can be put.

    Attributes:
        url: of a folder that no other test uses.
        filesystem: of fsspec.
    """

    url: str
    filesystem: Any

    def put(self, folder: Path, name: str = "") -> str:
        """Copy a local folder there; its URL."""
        url = f"{self.url}/{name}" if name else self.url
        root = self.filesystem._strip_protocol(url)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.filesystem.pipe(
            {f"{root}/{path.relative_to(folder)}": path.read_bytes() for path in files}
        )
        return url

    def write(self, name: str, data: bytes) -> str:
        """Make a file; its URL."""
        url = f"{self.url}/{name}"
        self.filesystem.pipe_file(self.filesystem._strip_protocol(url), data)
        return url

    def names(self, folder: str = "") -> list[str]:
        """Files below a folder."""
        root = self.filesystem._strip_protocol(f"{self.url}/{folder}").rstrip("/")
        self.filesystem.invalidate_cache()
        return sorted(key[len(root) + 1 :] for key in self.filesystem.find(root))

    def read(self, name: str) -> bytes:
        """The content of a file."""
        data = self.filesystem.cat_file(self.filesystem._strip_protocol(f"{self.url}/{name}"))
        assert isinstance(data, bytes)
        return data


def use_s3(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Say where S3 is, and who we are; connections of others are forgotten."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
