"""Asks a server the four requests at once: ``ask.py PORT``; waits until it is there."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from four_requests import PROMPTS, TOKENS

_SECONDS = 900  # a busy machine starts vLLM in minutes


def wait(address: str) -> None:
    """Until the server answers.

    Raises:
        SystemExit: it does not.
    """
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=2)
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise SystemExit("the server does not come up")


def ask(address: str, prompt: list[int]) -> list[int]:
    """The tokens of an answer."""
    body = {
        "model": "model",
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "detokenize": False,
        "return_token_ids": True,
    }
    request = urllib.request.Request(
        f"{address}/v1/completions",
        json.dumps(body).encode(),
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
