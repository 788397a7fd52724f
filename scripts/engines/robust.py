"""Breaks captured servers off in the middle of their work, and tells what became of it.

    robust.py CHECKPOINT FOLDER [--only NAME,...] [--write PAGE]

A captured server loses a client, a process or its disk while it answers one more request, and so
does one without a capture. For each pair: whether the answers are the same, how both ended, what is
said of the capture, and how many processes are left. What came of it is kept as robust.json in
FOLDER; ``--write`` writes it into the page of live.py.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ask import ask, body, wait
from four_requests import PROMPTS
from results_page import HEADING, broken_off

PORT = 8767
ADDRESS = f"http://127.0.0.1:{PORT}"
_SECONDS = 120  # a process that takes longer to end hangs
_DISK = "1500k"
_NAME = str.maketrans(" `", "__")


@dataclass
class Server:
    """A server that runs, and the request that it is answering when it is broken off."""

    process: subprocess.Popen[bytes]
    log: Path
    keyboard: int

    def answers(self) -> list[list[int]]:
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            return list(pool.map(lambda prompt: ask(ADDRESS, prompt), PROMPTS))

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """While a client reads a long answer; afterwards it has gone and not waited for the end."""
        client = http.client.HTTPConnection("127.0.0.1", PORT, timeout=_SECONDS)
        text = json.dumps(body(PROMPTS[1], tokens=58) | {"stream": True})
        client.request("POST", "/v1/completions", text, {"Content-Type": "application/json"})
        try:
            client.getresponse().readline()
            yield
        finally:
            client.close()

    def kill(self, name: str) -> None:
        """Kill the process that vLLM gave a name."""
        found = [pid for pid, title in below(self.process.pid).items() if name in title]
        os.kill(found[-1], signal.SIGKILL)

    def end(self, seconds: int = _SECONDS) -> int | str:
        """Wait for the program: its exit code. What hangs is killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid in below(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            return "hangs"
        finally:
            os.close(self.keyboard)


def below(root: int) -> dict[int, str]:
    """A process and those that descend from it, with their titles."""
    text = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True)
    rows = [row for line in text.stdout.splitlines() if len(row := line.split(None, 2)) == 3]
    found = {int(pid): title for pid, _, title in rows if pid == str(root)}
    waiting = [str(root)]
    while waiting:
        parent = waiting.pop()
        for pid, above, title in rows:
            if above == parent:
                found[int(pid)] = title
                waiting.append(pid)
    return found


def start(case: Case, checkpoint: Path, folder: Path, *, captured: bool) -> Server:
    """A server that is ready, on a terminal of its own."""
    command = (
        f"vllm serve {shlex.quote(str(checkpoint))} --served-model-name model "
        "--skip-tokenizer-init --enforce-eager --dtype bfloat16 --max-model-len 64 "
        "--max-num-batched-tokens 24 --max-num-seqs 4 --block-size 32 "
        f"--tensor-parallel-size {case.ranks} --port {PORT} {case.options}"
    )
    words = shlex.split(command)
    if captured:
        words = ["ait", "llm", "dump", "--exec", command, "--type", "torch", "-er", "all"]
        words += ["-o", str(folder / "mine")]
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"} if case.ranks > 1 else {}
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{'server' if captured else 'plain'}.log"
    keyboard, terminal = os.openpty()
    with log.open("w") as file:
        process = subprocess.Popen(
            words,
            stdin=terminal,
            stdout=file,
            stderr=file,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    os.close(terminal)
    server = Server(process, log, keyboard)
    try:
        wait(ADDRESS, process)
    except BaseException:
        server.end(0)
        raise
    return server


def client_leaves(server: Server) -> None:
    """Its request is cancelled; then the server is asked to end."""
    with server.answering():
        pass


def is_killed(name: str) -> Callable[[Server], None]:
    def kill(server: Server) -> None:
        with server.answering():
            server.kill(name)

    return kill


def is_asked_to_end(server: Server) -> None:
    """As a process manager asks, in mid-answer; the client goes a second later."""
    with server.answering():
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1)


def is_interrupted(server: Server) -> None:
    """By its terminal."""
    with server.answering():
        os.write(server.keyboard, b"\x03")
        time.sleep(1)


@dataclass(frozen=True)
class Case:
    """How a server is broken off.

    Attributes:
        act: does it.
        ranks: of tensor parallelism.
        options: further ones of the server.
        lives: the server answers afterwards.
        disk: its capture goes to a small one.
    """

    act: Callable[[Server], None]
    ranks: int = 1
    options: str = ""
    lives: bool = False
    disk: bool = False


CASES = {
    "client leaves": Case(client_leaves, lives=True),
    "disk is full": Case(client_leaves, lives=True, disk=True),
    "worker is killed": Case(is_killed("VLLM::Worker")),
    "one of two workers is killed": Case(is_killed("VLLM::Worker"), ranks=2),
    "engine core is killed": Case(is_killed("VLLM::EngineCore")),
    "server is killed": Case(is_killed("vllm serve")),
    "SIGTERM": Case(is_asked_to_end),
    "SIGTERM with `--shutdown-timeout 30`": Case(is_asked_to_end, options="--shutdown-timeout 30"),
    "Ctrl-C": Case(is_interrupted),
}


def examine(case: Case, checkpoint: Path, folder: Path, *, captured: bool) -> dict[str, Any]:
    """Break one server off: what came of it."""
    server = start(case, checkpoint, folder, captured=captured)
    answers = [server.answers()]
    family = below(server.process.pid)
    begun = time.monotonic()
    case.act(server)
    if case.lives:
        answers.append(server.answers())
        time.sleep(1)
        server.process.send_signal(signal.SIGTERM)
    code = server.end()
    return {
        "answers": answers,
        "code": code,
        "seconds": round(time.monotonic() - begun),
        "said": said(server.log),
        "left": left(family),
    }


def left(family: Iterable[int]) -> int:
    """How many processes of a server have not ended a little later; they are killed."""
    end = time.monotonic() + 20
    while time.monotonic() < end and any(Path(f"/proc/{pid}/exe").exists() for pid in family):
        time.sleep(0.5)
    found = [pid for pid in family if Path(f"/proc/{pid}/exe").exists()]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def said(log: Path) -> list[str]:
    """The verdict of the capture, and what it misses."""
    text = log.read_text(errors="replace")
    verdicts = re.findall(r"ait llm dump: (\w+)$", text, re.MULTILINE)  # maybe behind other text
    told = re.findall(r"^  (?:program|missing) .*", text, re.MULTILINE)
    return [*verdicts[-1:], *(" ".join(line.split()) for line in told)]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system that is soon full at a folder; False where this user cannot have one."""
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
    mounted = not subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    checkpoint, place = options.checkpoint.resolve(), options.folder.resolve() / "robust"
    table = options.folder / "robust.json"
    kept = json.loads(table.read_text()) if table.exists() else {}
    only = [name for name in CASES if not options.only or name in options.only.split(",")]
    for name in only:
        case, folder = CASES[name], place / name.translate(_NAME)
        shutil.rmtree(folder, ignore_errors=True)
        disk = small_disk(folder / "mine") if case.disk else contextlib.nullcontext(True)
        with disk as is_there:
            if not is_there:
                continue  # only root can have one
            plain = examine(case, checkpoint, folder, captured=False)
            found = examine(case, checkpoint, folder, captured=True)
        found["same"] = found.pop("answers") == plain.pop("answers")
        kept[name] = found | {"plain": plain}
        print(json.dumps({"case": name, **kept[name]}), flush=True)
        table.write_text(json.dumps(kept))
    if options.write is not None:
        text = options.write.read_text("utf-8").partition(HEADING)[0].rstrip()
        options.write.write_text(f"{text}\n\n{broken_off(kept)}", "utf-8")


if __name__ == "__main__":
    main()
