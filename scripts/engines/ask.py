"""Asks a server the four requests at once: ``ask.py PORT``; waits until it is there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from four_requests import PROMPTS, TOKENS

_SECONDS = 900  # a busy machine starts vLLM in minutes


def wait(address: str, server: subprocess.Popen[bytes] | None = None) -> None:
    """Until the server answers.

    Args:
        address: of the server.
        server: its process, if that is known.

    Raises:
        SystemExit: it does not, or has ended.
    """
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and (server is None or server.poll() is None):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=2)
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise SystemExit("the server does not come up")


def body(prompt: list[int], tokens: int = TOKENS) -> dict[str, Any]:
    """A request for the likeliest tokens."""
    return {
        "model": "model",
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "detokenize": False,
        "return_token_ids": True,
    }


def ask(address: str, prompt: list[int]) -> list[int]:
    """The tokens of an answer."""
    request = urllib.request.Request(
        f"{address}/v1/completions",
        json.dumps(body(prompt)).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
        return list(json.load(reply)["choices"][0]["token_ids"])


def main() -> None:
    address = f"http://127.0.0.1:{sys.argv[1]}"
    wait(address)
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        print(json.dumps(list(pool.map(lambda prompt: ask(address, prompt), PROMPTS))))


if __name__ == "__main__":
    main()
