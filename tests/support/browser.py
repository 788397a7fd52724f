"""A browser without a window, for pages that reports consist of."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--v=0", "--virtual-time-budget=10000", "--window-size=1500,1900",
)  # fmt: skip


def opened(
    page: Path, profile: Path, *options: str, query: str = "", fragment: str = ""
) -> tuple[str, list[str]]:
    """Open a page, and return its document after its script ran and what the console said.

    Args:
        page: the file.
        profile: an empty folder of its own.
        options: further ones for the browser.
        query: what follows the ``?`` of the address.
        fragment: what follows its ``#``.
    """
    assert BROWSER is not None
    address = f"{page.as_uri()}?{query}" if query else page.as_uri()
    address += f"#{fragment}" if fragment else ""
    home = {**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile)}
    done = subprocess.run(
        [BROWSER, *_FLAGS, f"--user-data-dir={profile}", *options, "--dump-dom", address],
        env=home,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console
