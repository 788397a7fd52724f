"""An object store for draws: a server that speaks S3, with the inputs of commands in it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

_BUCKET = "captures"


class ObjectStore:
    """Runs until it is closed.

    Args:
        folder: what is copied into it.
    """

    def __init__(self, folder: Path) -> None:
        import fsspec
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"s3://{_BUCKET}"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "something",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        os.environ.update(self.environment)
        store = fsspec.filesystem("s3")
        store.mkdir(_BUCKET)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                store.pipe_file(f"{_BUCKET}/{path.relative_to(folder)}", path.read_bytes())

    def close(self) -> None:
        """End the server."""
        self._server.stop()
