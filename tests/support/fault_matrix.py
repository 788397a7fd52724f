"""Faults of the Llama demo, the operators they are put into, and what comparing them finds."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ait_llm
from ait_llm.compare import compare
from ait_llm.core.comparison import Report

LAYERS = 3
TOKENS = 2
# Ids of the first layers: two embeddings come before each row of layers, norm and head after it.
PREFILL, DECODE = 2, LAYERS + 6
_PROGRAM = Path(__file__).with_name("faulty_demos.py")

# Where the operators of a layer are, by a name of our own.
PLACES = {
    "input norm": "0_0_0_0",
    "qkv": "0_0_0_1",
    "split": "0_0_1",
    "rope": "0_1_0",
    "cache": "0_2_0",
    "attention": "0_2_1",
    "o": "0_3",
    "first sum": "1",
    "post norm": "2_0_0",
    "gate-up": "2_0_1",
    "swiglu": "2_1",
    "down": "2_2",
    "second sum": "3",
}
_ATTENTION = ("attention",)
_PRODUCTS = ("down", "qkv", "o", "gate-up")
# Which operators a fault can be put into; the first one stands for the fault in the short matrix.
TARGETS = {
    "wrong_epsilon": ("input norm", "post norm"),
    "wrong_softmax_scale": _ATTENTION,
    "missing_mask": _ATTENTION,
    "swapped_heads": _ATTENTION,
    "stale_padding": _ATTENTION,
    "half_accumulation": _PRODUCTS,
    "dropped_tail": ("o", *(place for place in PLACES if place != "o")),
    "scale_1pct": ("swiglu", *(place for place in PLACES if place != "swiglu")),
    "wrong_element": ("qkv", *(place for place in PLACES if place != "qkv")),
    "inf_at_step": ("gate-up", *(place for place in PLACES if place != "gate-up")),
}


@dataclass(frozen=True)
class Case:
    """One fault in one operator.

    Attributes:
        fault: its name.
        layer: number of the layer, from 0.
        place: the operator, a key of PLACES.
    """

    fault: str
    layer: int
    place: str

    @property
    def op_id(self) -> str:
        """The operator that is wrong. Only decode reads beyond the end of a sequence."""
        first = DECODE if self.fault == "stale_padding" else PREFILL
        return f"{first + self.layer}_{PLACES[self.place]}"

    @property
    def request(self) -> str:
        """As hostatb takes it."""
        return f"{self.fault}:op={self.op_id}"

    def __str__(self) -> str:
        return f"{self.fault} in {self.place} of layer {self.layer}"


def short_matrix() -> list[Case]:
    """Every fault in the first, middle and last layer, in one operator each."""
    return [
        Case(fault, layer, places[0])
        for fault, places in TARGETS.items()
        for layer in range(LAYERS)
    ]


def full_matrix() -> list[Case]:
    """Every fault in every operator that it applies to, in every layer."""
    return [
        Case(fault, layer, place)
        for fault, places in TARGETS.items()
        for place in places
        for layer in range(LAYERS)
    ]


def dump(command: Sequence[str], folder: Path, *options: str) -> str:
    """Capture a program with ``ait llm dump``; what it printed.

    Raises:
        RuntimeError: the capture failed or lost something.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The checkout need not be installed, and the traced program starts in another folder.
    paths = [str(Path(ait_llm.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("ATB_")}
    started = [sys.executable, "-m", "ait_llm", "llm", "dump", "--exec", shlex.join(command)]
    ran = subprocess.run(
        [*started, *options, "-er", "all", "-o", str(folder)],
        cwd=folder,
        env={
            **environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return ran.stdout


def dump_demo(name: str, folder: Path, *arguments: str) -> Path:
    """Capture a demo program, of ATB or of PyTorch; the dump."""
    golden = name.endswith("_torch")
    kinds = ["torch"] if golden else ["tensor", "layer", "model"]
    command = [sys.executable, "-m", f"ait_llm.hostatb.demo.{name}", *arguments]
    dump(command, folder, "--type", *kinds)
    return folder / "ait_dump"


def dump_golden(folder: Path) -> Path:
    """The PyTorch twin, generating by itself; its tokens are in ``tokens.safetensors``."""
    sizes = ("--layers", str(LAYERS), "--tokens", str(TOKENS))
    return dump_demo("llama_torch", folder, *sizes, "--save-outputs", "tokens.safetensors")


def dump_faulty_llamas(folder: Path, golden: Path, requests: Sequence[str]) -> dict[str, Path]:
    """The Llama demo once per request, all following the golden tokens; the dump of each."""
    tokens = golden.parent / "tokens.safetensors"
    return _dump_faulty(folder, ["llama", str(tokens), str(LAYERS)], requests)


def dump_faulty_berts(folder: Path, requests: Sequence[str]) -> dict[str, Path]:
    """The BERT demo with random weights once per request; the dump of each."""
    return _dump_faulty(folder, ["bert"], requests)


def _dump_faulty(
    folder: Path, arguments: Sequence[str], requests: Sequence[str]
) -> dict[str, Path]:
    command = [sys.executable, str(_PROGRAM), *arguments, *requests]
    printed = dump(command, folder, "--type", "tensor", "layer", "model")
    lines = (line.partition(" ") for line in printed.splitlines())
    pids = {request: pid for pid, _, request in lines}
    tensors = folder / "ait_dump" / "tensors"
    found = {request: list(tensors.glob(f"*_{pids.get(request)}")) for request in requests}
    lost = [request for request, paths in found.items() if not paths]
    if lost:
        raise RuntimeError(f"no dump of {lost}; the program printed {printed!r}")
    return {request: paths[0] for request, paths in found.items()}


def named(report: Report) -> str:
    """The operation that the report names first, empty if nobody is blamed."""
    return report.origins[0].op_id if report.origins else ""


def reports(
    golden: Path, runs: dict[str, Path], cases: Iterable[Case], *, deep: bool = False
) -> Iterator[tuple[Case, Report]]:
    """Compare each case with golden, without a mapping file."""
    for case in cases:
        yield case, compare(golden, runs[case.request], deep=deep, jobs=1)
