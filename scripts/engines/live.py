"""Captures vLLM as it runs, makes the golden run, compares, and tells what was right.

    live.py CHECKPOINTS FOLDER [--families F,...] [--only NAME,...] [--compiled] [--again]
            [--write PAGE]

For each family: healthy offline, as a server with four requests at once, on two ranks, and
compiled, on one rank and on two, where a run without a capture must choose the same tokens with
the same log-probabilities to the last bit; then eight faults, and with ``--compiled`` these in
compiled runs. Captures and results are kept in FOLDER, so that a run that was broken off goes on;
``--again`` compares what is there once more, ``--write`` writes the table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bugs import BUGS, Bug

HERE = Path(__file__).resolve().parent
FAMILIES = ("llama", "qwen3", "mixtral", "gemma2")
HEALTHY = ("offline", "serve", "ranks", "compiled", "compiled-ranks")
_COMPILED = "compiled-"
PORT = 8765
_DUMP = ("--type", "torch", "-er", "all")


@contextmanager
def group(
    words: list[str], file: IO[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process group of its own, of which nothing is left behind.

    Engines start processes that outlive the one that started them.
    """
    process = subprocess.Popen(
        words, stdout=file, stderr=file, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(words: list[str], log: Path, **environment: str) -> int:
    """A command to its end, with all that it says in a file."""
    with log.open("w") as file, group(words, file, {**os.environ, **environment}) as process:
        return process.wait()


def capture(name: str, checkpoint: Path, folder: Path, bug: Bug | None) -> int:
    """A captured program: its exit code."""
    script = [sys.executable, str(HERE / "generate_vllm_requests.py"), str(checkpoint), "bfloat16"]
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    if name == "serve":
        return serve(checkpoint, folder)
    if name.endswith("ranks"):
        script.append("2")
        environment = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    if name.startswith("compiled"):
        environment["AIT_COMPILED"] = "1"
    if bug is not None:
        environment["AIT_BUG"] = name.removeprefix(_COMPILED)
    if is_plain_too(name):
        run(script, folder / "plain.log", **environment)
    words = ["ait", "llm", "dump", "--exec", shlex.join(script), *_DUMP, "-o", str(folder / "mine")]
    return run(words, folder / "mine.log", **environment)


def serve(checkpoint: Path, folder: Path) -> int:
    """A server that answers the requests at once; its exit code when it is asked to end."""
    command = (
        f"vllm serve {shlex.quote(str(checkpoint))} --served-model-name model "
        "--skip-tokenizer-init --enforce-eager --dtype bfloat16 --max-model-len 64 "
        f"--max-num-batched-tokens 24 --max-num-seqs 4 --block-size 32 --port {PORT}"
    )
    words = ["ait", "llm", "dump", "--exec", command, *_DUMP, "-o", str(folder / "mine")]
    with (folder / "mine.log").open("w") as file, group(words, file) as server:
        try:
            asked = run([sys.executable, str(HERE / "ask.py"), str(PORT)], folder / "ask.log")
            time.sleep(2)  # vLLM kills its workers at once
        finally:
            code = end(server)
    return asked or code


def end(server: subprocess.Popen[bytes]) -> int:
    """Ask a server to end: its exit code. vLLM passes over a signal that comes while it starts."""
    for _ in range(5):
        server.send_signal(signal.SIGTERM)
        try:
            return server.wait(60)
        except subprocess.TimeoutExpired:
            continue
    server.kill()
    return server.wait()


def examine(family: str, name: str, checkpoint: Path, folder: Path) -> dict[str, Any]:
    """Capture, golden run and comparison of one case; what came of it."""
    bug = bug_of(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    code = capture(name, checkpoint, folder, bug)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    found: dict[str, Any] = {"family": family, "case": name, "day": day, "dump": code}
    if is_plain_too(name):
        found["same"] = answers(folder / "plain.log") == answers(folder / "mine.log") != []
    words = ["ait", "llm", "golden", "--model", str(checkpoint), "--like", str(folder / "mine")]
    found["golden"] = run([*words, "-o", str(folder / "golden")], folder / "golden.log")
    found |= compared(name, checkpoint, folder)
    return found | {"seconds": round(time.monotonic() - begun)}


def compared(name: str, checkpoint: Path, folder: Path) -> dict[str, Any]:
    """What the comparison of a capture with its golden run says."""
    words = ["ait", "llm", "compare", "-gp", str(folder / "golden"), "-mp", str(folder / "mine")]
    words += ["--weights-from", f"mine={checkpoint}", "-o", str(folder / "report"), "--json"]
    code = run(words, folder / "compare.log")
    return {"compare": code, **summary(folder / "compare.log", bug_of(name))}


def answers(log: Path) -> list[str]:
    """Tokens and probabilities that a program printed."""
    return [line for line in log.read_text().splitlines() if line.startswith("[[")]


def is_plain_too(name: str) -> bool:
    """True for a case that is also run without a capture."""
    return name.startswith("compiled") and bug_of(name) is None


def bug_of(name: str) -> Bug | None:
    """The fault of a case; None for a healthy one."""
    return BUGS.get(name.removeprefix(_COMPILED))


def summary(log: Path, bug: Bug | None) -> dict[str, Any]:
    """What the result of a comparison says, and whether it names what is wrong."""
    lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
    if not lines:
        return {"verdict": "none"}
    result = json.loads(lines[-1])
    origins = [origin["op"] for origin in result.get("origins", [])]
    found = {name: result.get(name) for name in ("verdict", "counts", "not_comparable", "left_out")}
    found["origins"] = origins
    if bug is not None:
        first = result["origins"][0] if origins else {}
        named = [*origins[:1], *first.get("candidates", [])]
        found["right"] = bool(origins) and bool(re.search(bug.origin, origins[0]))
        found["among"] = any(re.search(bug.origin, op) for op in named)
        found["certain"] = bool(origins) and first.get("certain", True)  # told where it is not
        found["innocent"] = sorted({op for op in origins if not re.search(bug.guilty, op)})
        sure = {each["op"] for each in result["origins"] if each.get("certain", True)}
        found["accused"] = sorted(sure & set(found["innocent"]))
    return found


def cases(family: str, *, compiled: bool = False) -> list[str]:
    """Healthy ones first, then the faults of a family, and on demand the same compiled."""
    faults = [name for name, bug in BUGS.items() if family in bug.families]
    return [*HEALTHY, *faults, *(f"{_COMPILED}{name}" for name in faults if compiled)]


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that what was started ends, too
        signal.signal(number, lambda given, _frame: sys.exit(128 + given))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--only", default="")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    for family in options.families.split(","):
        for name in cases(family, compiled=options.compiled):
            place = options.folder / family / name
            kept = place.with_suffix(".json")
            if only and name not in only:
                continue
            checkpoint = (options.checkpoints / family).resolve()
            if not kept.exists():
                found = examine(family, name, checkpoint, place)
            elif options.again:
                found = json.loads(kept.read_text()) | compared(name, checkpoint, place)
            else:
                continue
            kept.write_text(json.dumps(found))
            print(json.dumps(found), flush=True)
    results = []
    for path in sorted(options.folder.glob("*/*.json")):
        log = path.with_suffix("") / "compare.log"
        day = time.strftime("%Y-%m-%d", time.gmtime(path.stat().st_mtime))
        found = {"day": day, **json.loads(path.read_text())}
        results.append(found | summary(log, bug_of(path.stem)))
    if options.write is not None:
        from results_page import HEADING, page

        kept = options.write.read_text("utf-8") if options.write.exists() else ""
        _, heading, rest = kept.partition(HEADING)  # of robust.py
        ran = {(each["family"], each["case"]) for each in results}
        every = [(family, name) for family in FAMILIES for name in cases(family)]
        missing = [" ".join(each) for each in every if each not in ran]
        text = page(results, missing, kept)
        options.write.write_text(f"{text}\n{heading}{rest}" if heading else text, "utf-8")


if __name__ == "__main__":
    main()
