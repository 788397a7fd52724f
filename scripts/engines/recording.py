"""Captures both programs on each checkpoint and packs what the tests need.

    recording.py CHECKPOINTS OUTPUT [FAMILY ...]

Each program runs in bfloat16, as users run it, and in float32 for the truth: the numbers by which
two values are told to be the same. The tokens of all four runs must be equal. With ``operators`` in
its name a recording has aten operators, of runs in float32; with ``ranks`` two ranks of vLLM.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from packing import pack, truth

HERE = Path(__file__).resolve().parent
LIBRARIES = ("transformers", "vllm")
FAMILIES = ("llama", "qwen3", "mixtral", "gemma2")
OPERATORS = ("llama",)
RANKS = ("llama", "qwen3")  # heads of keys and values: one for each rank, one for both


def capture(
    library: str, checkpoint: Path, dtype: str, folder: Path, kind: str = "torch", *more: str
) -> str:
    """Run a program under ``ait llm dump``; its last line, which is its tokens."""
    program = [sys.executable, str(HERE / f"generate_{library}.py"), str(checkpoint), dtype, *more]
    words = ["ait", "llm", "dump", "--exec", shlex.join(program), "--type", kind]
    words += ["-er", "all", "-o", str(folder)]
    if (dtype == "bfloat16" and library == "transformers") or kind == "torch-op":
        words.append("--weights")
    # one processor for each of two ranks
    bound = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"} if more else {}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **bound}
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)} failed:\n{done.stdout}\n{done.stderr}")
    found = next(line for line in reversed(done.stdout.splitlines()) if line.startswith("[["))
    return str(json.loads(found))


def record(family: str, checkpoint: Path, folder: Path, output: Path) -> None:
    """All captures of a family in an archive."""
    tokens = set()
    for library in LIBRARIES:
        tokens.add(capture(library, checkpoint, "bfloat16", folder / library))
        tokens.add(capture(library, checkpoint, "float32", folder / "exact" / library))
        truth(folder / "exact" / library, folder / f"{library}.npz")
    if len(tokens) != 1:
        raise SystemExit(f"{family}: the runs chose different tokens: {tokens}")
    print(f"{family}: {tokens.pop()}", flush=True)
    names = [*LIBRARIES, *(f"{library}.npz" for library in LIBRARIES)]
    pack(folder, names, output / f"{family}.tar.xz")


def record_operators(family: str, checkpoint: Path, folder: Path, output: Path) -> None:
    """Operators of a family in an archive; they are in float32 and are their own truth."""
    for library in LIBRARIES:
        capture(library, checkpoint, "float32", folder / library, "torch-op")
    pack(folder, list(LIBRARIES), output / f"{family}-operators.tar.xz")


def record_ranks(family: str, checkpoint: Path, folder: Path, output: Path) -> None:
    """Modules of two ranks in an archive; they are in float32 and are their own truth."""
    print(f"{family}, two ranks:", capture("vllm", checkpoint, "float32", folder, "torch", "2"))
    pack(folder.parent, [folder.name], output / f"{family}-ranks.tar.xz")


def main() -> None:
    checkpoints, output = Path(sys.argv[1]), Path(sys.argv[2])
    for family in sys.argv[3:] or FAMILIES:
        record(family, checkpoints / family, Path(family), output)
        if family in OPERATORS:
            record_operators(family, checkpoints / family, Path(f"{family}-operators"), output)
        if family in RANKS:
            record_ranks(family, checkpoints / family, Path(f"{family}-ranks") / "vllm", output)


if __name__ == "__main__":
    main()
