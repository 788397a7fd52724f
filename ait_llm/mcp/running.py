"""One command of ours in a process of its own, and its result as an object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ait_llm.errors import AitError
from ait_llm.mcp.limits import Limits

_SAID = 2000  # characters of messages that an answer repeats
# Python would import modules from the folder that it starts in, which agents write to.
_START = "import sys; sys.path.remove(''); from ait_llm.cli.main import main; main()"


class CommandFailedError(AitError):
    """A command that gave no result."""


def run(words: Sequence[str], limits: Limits) -> dict[str, Any]:
    """Run ``ait llm`` with these words and ``--json``.

    Returns:
        The object that it printed, with ``exit_code``. Commands that print a line for each row give
        ``rows``.

    Raises:
        CommandFailedError: it took too long, or ended without a result; the message is its own.
    """
    command = [sys.executable, "-c", _START, "llm", *words, "--json"]
    environment = {**os.environ, "AIT_LANG": "en", "NO_COLOR": "1"}
    with subprocess.Popen(
        command,
        cwd=limits.folders[0],
        env=environment,
        stdin=subprocess.DEVNULL,  # the client talks to the server there
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise CommandFailedError(
                f"ait llm {words[0]} was ended after {limits.seconds:g} s; ask for less, or start "
                "ait llm mcp with more --seconds"
            ) from None
    rows = _objects(out)
    if not rows:
        raise CommandFailedError(_reason(words[0], process.returncode, err))
    if len(rows) > 1 or words[0] == "show":
        return {"exit_code": process.returncode, "rows": rows}
    return {**rows[0], "exit_code": process.returncode}


def _objects(out: str) -> list[dict[str, Any]]:
    """Our objects among the lines; a program that runs prints there, too."""
    found = []
    for line in out.splitlines():
        if line.startswith('{"schema": "ait-llm.'):
            with suppress(ValueError):
                found.append(json.loads(line))
    return found


def _reason(name: str, code: int, err: str) -> str:
    said = [line for line in err.splitlines() if line.startswith("ait: error: ")]
    text = said[-1].removeprefix("ait: error: ") if said else err.strip()[-_SAID:]
    return f"ait llm {name} ended with exit code {code}: {text or 'it said nothing'}"
