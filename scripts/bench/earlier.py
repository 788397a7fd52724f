"""What a comparison costs beside an earlier version of ourselves, on the same captures.

    python scripts/bench/earlier.py EARLIER_PYTHON [--only NAME ...] [--repeats 3]

``EARLIER_PYTHON`` belongs to an environment with the earlier version. Captures of two healthy
Llamas are made with the version of today: ``wide`` is one pass of few large tensors, ``steps``
are six passes of many small ones, each in float32 and in bfloat16, with modules, with operators,
and with operators and weights. Nothing is wrong in them, so what looks for origins and proof has
nothing to do, and the cost should be that of reading, pairing and measuring. Processor time is
told, of all processes, the least of the repetitions; each command writes its csv report and runs
in one process. The version of today has to end with 0.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
from compare import Sample, run
from figures import figure
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from other_sums import OtherSums

from ait_llm import DumpConfig, register_hook

LIMIT = 1.2
# Not ``-m``: it takes the version of the working directory, whatever the environment has.
_COMMAND = "import sys; del sys.path[0]; from ait_llm.cli.main import main; sys.exit(main())"
SHAPES = {  # width, layers, tokens, passes
    "wide": (1024, 4, 128, 1),
    "steps": (64, 6, 8, 6),
}
DTYPES = ("float32", "bfloat16")
LEVELS = {
    "modules": {},
    "operators": {"operators": True},
    "operators and weights": {"operators": True, "weights": True},
}


def captures(folder: Path, shape: str, dtype: str, level: str) -> list[Path]:
    """Both sides: the same Llama, whose products sum in another order."""
    width, layers, tokens, passes = SHAPES[shape]
    ids = torch.randint(0, 512, (1, tokens), generator=torch.Generator().manual_seed(1))
    sides = []
    for side, sums in (("golden", nullcontext()), ("mine", OtherSums())):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=512,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
        model = LlamaForCausalLM(config).eval().to(getattr(torch, dtype))
        sides.append(folder / side)
        wanted = DumpConfig(dump_path=folder / side, token_range=range(passes), **LEVELS[level])
        with sums, torch.no_grad(), register_hook(model, wanted):
            model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=passes, do_sample=False
            )
    return sides


def cost(folder: Path, python: str, sides: list[Path]) -> Sample:
    """One run of a version; earlier ones may end with 1 or 3, they accused such pairs."""
    report = folder / "report"
    shutil.rmtree(report, ignore_errors=True)
    words = [python, "-c", _COMMAND, "llm", "compare", "-j", "1", "--format", "csv"]
    expected = (0,) if python == sys.executable else (0, 1, 3)
    return run([*words, "-gp", sides[0], "-mp", sides[1], "-o", report], expected)


def main() -> int:
    """Print both costs and their ratio for each kind of capture; 1 if one is too much."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("earlier", help="the Python of an environment with an earlier version")
    parser.add_argument(
        "--only", nargs="+", default=[], help="kinds, for example 'steps float32 modules'"
    )
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if shutil.which(given.earlier) is None:
        parser.error(f"{given.earlier} is no Python that can be run")
    cases = list(itertools.product(SHAPES, DTYPES, LEVELS))
    kinds = [" ".join(case) for case in cases]
    if unknown := [each for each in given.only if each not in kinds]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(map(repr, kinds))}")
    torch.set_num_threads(1)
    met = True
    for case, kind in zip(cases, kinds, strict=True):
        if given.only and kind not in given.only:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sides = captures(folder, *case)
            files = sum(1 for each in folder.rglob("*") if each.is_file())
            pythons = (given.earlier, sys.executable)
            both = [
                [cost(folder, python, sides) for python in pythons] for _ in range(given.repeats)
            ]
        then, now = zip(*both, strict=True)
        seconds = [min(each.cpu_seconds for each in version) for version in (then, now)]
        memory = [max(each.peak_mb for each in version) for version in (then, now)]
        ratio = seconds[1] / seconds[0]
        print(
            f"{kind}: {files} files, {seconds[1]:.2f} s beside {seconds[0]:.2f} s"
            f" ({ratio:.2f}), {memory[1]:.0f} MB beside {memory[0]:.0f} MB"
            f" ({memory[1] / memory[0]:.2f})",
            flush=True,
        )
        figure(f"compare beside an earlier version, {kind}", ratio, "times", at_most=LIMIT)
        met &= ratio < LIMIT
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
