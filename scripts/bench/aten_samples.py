"""Torch's own samples of its operators, run on the CPU and judged alone: nothing may be accused.

    python scripts/bench/aten_samples.py [--dtype bfloat16 ...] [--most 6] [--keep DIR]

The operators and their inputs are those of PyTorch's own tests (``op_db``; that needs the package
``expecttest``). They are captured as any program is, and ``ait llm opcheck`` judges each call by
the contract. Left out are operators that draw at random, and linear algebra that LAPACK does.
Prints what is judged and what is accused, and exits with 1 where anything is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.pipeline import opcheck

# Names of operators in op_db that are left out, or parts of them.
_DRAWN = ("rand", "bernoulli", "dropout", "normal", "multinomial", "empty", "poisson", "cauchy")
_OTHER = (
    "jiterator",
    "exponential",
    "geometric",
    "svd",
    "pca_lowrank",
    "sparse",
    "nested",
    "matrix_exp",
)
_ALGEBRA = ("linalg.norm", "linalg.vector_norm", "linalg.cross", "linalg.multi_dot")
_TYPES = ("bfloat16", "float16", "float32")
# What torch itself gets wrong: a loss of 16 bits that overflows on the way.
_WRONG = {("float16", "nn.functional.soft_margin_loss")}


class Samples(nn.Module):
    """Calls operators one after another, each with its own inputs."""

    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)  # a model has weights
        self._calls = calls

    def forward(self) -> Tensor:
        for operator, sample in self._calls:
            try:
                operator(sample.input, *sample.args, **sample.kwargs)
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue  # samples are also for what an operator refuses
        found: Tensor = self.linear(torch.zeros(1, 2))
        return found


def main() -> int:
    """Judge all samples, and print what was accused."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dtype", nargs="*", choices=_TYPES, default=_TYPES)
    parser.add_argument("--most", type=int, default=6, help="samples of each operator")
    parser.add_argument("--keep", type=Path, help="where captures stay")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    accused = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.dtype:
            calls = _samples(name, given.most)
            accused += _judge(name, calls, (given.keep or Path(temporary)) / name)
    return int(accused > 0)


def _samples(name: str, most: int) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    dtype = getattr(torch, name)
    torch.manual_seed(0)
    found = []
    for operator in sorted(op_db, key=lambda one: (one.name, one.variant_test_name)):
        algebra = operator.name.startswith("linalg.") and operator.name not in _ALGEBRA
        if algebra or any(word in operator.name for word in (*_DRAWN, *_OTHER)):
            continue
        if dtype not in operator.supported_dtypes("cpu") or (name, operator.name) in _WRONG:
            continue
        samples = list(operator.sample_inputs("cpu", dtype, requires_grad=False))
        found += [(operator, one) for one in samples[:: max(1, len(samples) // most)][:most]]
    return found


def _judge(name: str, calls: list[Any], folder: Path) -> int:
    if not folder.exists():
        model = Samples(calls).eval()
        config = DumpConfig(dump_path=folder, operators=True, weights=True)
        with torch.no_grad(), register_hook(model, config):
            model()
    report = opcheck(folder / "ait_dump")
    counts = Counter(item.verdict.name for item in report.items)
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    print(f"{name}: {len(calls)} samples; outputs: {said}", flush=True)
    for item in report.items:
        if item.verdict is Verdict.FAIL:
            print(f"  {item.op}: {item.reason}")
    return counts[Verdict.FAIL.name]


if __name__ == "__main__":
    sys.exit(main())
