"""Programs that bugs are put into, and the healthy ones that they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from shutil import rmtree

import torch
from healthy_runs.drawn.decoder import Decoder
from healthy_runs.drawn.layers import Ways
from matching_truth import families, litgpt_programs
from matching_truth.drives import DRIVES, Generation, once
from matching_truth.program import Drive
from torch import nn

from ait_llm import DumpConfig, compare, register_hook
from ait_llm.core.comparison import Verdict
from bugs.functions import Functions
from bugs.model import Site
from bugs.places import Places
from bugs.tracing import Call, Trace

DTYPES = ("float32", "float16", "bfloat16")
_ONLY_EAGER = ("mamba", "gemma2", "gpt-oss")


@dataclass(frozen=True)
class Program:
    """One program of a model.

    Attributes:
        library: ``transformers``, ``litgpt``, or ``drawn`` for :mod:`healthy_runs.drawn`.
        family: of :mod:`matching_truth.families`; the number of a decoder that is drawn.
        attention: ``eager`` or ``sdpa``; for a decoder that is drawn, which of its ways it is
            written in.
        dtype: name of the type it runs in.
        generates: three steps with a cache instead of one pass.
    """

    library: str
    family: str
    attention: str
    dtype: str
    generates: bool

    @property
    def name(self) -> str:
        """Unique."""
        drive = "generates" if self.generates else "once"
        return f"{self.library}-{self.family}-{self.attention}-{self.dtype}-{drive}"

    def make(self) -> nn.Module:
        """A fresh model; always the same weights."""
        torch.manual_seed(7)
        model: nn.Module
        if self.library == "litgpt":
            model = litgpt_programs.make(self.family)
        elif self.library == "drawn":
            ways = Ways.draw(Random(f"{self.attention} {self.family}"))
            model = Decoder(int(self.family), ways)
        else:
            model = families.make(self.family, "distinct", self.attention)
        return model.to(getattr(torch, self.dtype)).eval()

    @property
    def drive(self) -> Drive:
        """Calls the model."""
        if self.library == "litgpt":
            return litgpt_programs.once
        if self.library == "drawn":
            return _eight_tokens
        call = Generation() if self.generates else DRIVES.get(self.family, once)
        return in_type(call, getattr(torch, self.dtype))


def _eight_tokens(model: nn.Module) -> None:
    model(torch.tensor([[3, 17, 9, 44, 9, 1, 28, 30]]))


def in_type(call: Drive, dtype: torch.dtype) -> Drive:
    """A drive whose images and sounds have a type: that of the model."""

    def drive(model: nn.Module) -> None:
        def cast(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
            return args, {
                name: each.to(dtype)
                if isinstance(each, torch.Tensor) and each.is_floating_point()
                else each
                for name, each in kwargs.items()
            }

        handle = model.register_forward_pre_hook(cast, with_kwargs=True, prepend=True)
        try:
            call(model)
        finally:
            handle.remove()

    return drive


@dataclass(frozen=True)
class Pair:
    """A program that gets bugs, and the healthy program that is golden.

    Attributes:
        golden, mine: programs.
        operators: captured with operators, else modules alone.
    """

    golden: Program
    mine: Program
    operators: bool

    @property
    def name(self) -> str:
        """As the results page has it."""
        mine, golden = self.mine, self.golden
        known = mine.library == "transformers"
        words = [mine.family if known else f"{mine.library} {mine.family}"]
        words += [mine.attention, "generates"] if mine.generates else [mine.attention]
        if golden.attention != mine.attention:
            words.append(f"against {golden.attention}")
        if golden.dtype != mine.dtype:
            words.append(f"against {golden.dtype}")
        return " ".join(words)


def draw(rng: Random) -> Pair:
    """A pair of programs by chance."""
    library = "litgpt" if litgpt_programs.is_installed() and rng.random() < 0.15 else "transformers"
    dtype, operators = rng.choice(DTYPES), rng.random() < 0.5
    if library == "litgpt":
        family = rng.choice(sorted(litgpt_programs.CONFIGS))
        program = Program(library, family, "own", dtype, False)
        return Pair(program, program, operators)
    family = rng.choice(families.FAMILIES)
    both = family not in _ONLY_EAGER
    attention = "sdpa" if both and rng.random() < 0.4 else "eager"
    generates = family not in DRIVES and rng.random() < 0.2
    mine = golden = Program(library, family, attention, dtype, generates)
    way = rng.random()
    if way < 0.2 and both:
        other = "eager" if attention == "sdpa" else "sdpa"
        golden = Program(library, family, other, dtype, generates)
    elif way < 0.4:
        golden = Program(library, family, attention, "float32", generates)
    return Pair(golden, mine, operators)


def draw_decoder(rng: Random) -> Pair:
    """Two decoders of one design that is drawn, mostly written in other ways."""
    dtype, operators = rng.choice(DTYPES), rng.random() < 0.7
    number = str(rng.randrange(10_000))
    mine = Program("drawn", number, "own", dtype, False)
    attention = "own" if rng.random() < 0.3 else "other"
    other = "float32" if rng.random() < 0.2 else dtype
    return Pair(Program("drawn", number, attention, other, False), mine, operators)


@dataclass(frozen=True)
class Healthy:
    """What is known of a healthy program.

    Attributes:
        calls: its operators.
        operators, functions: where bugs can be put.
    """

    calls: tuple[Call, ...]
    operators: tuple[Site, ...]
    functions: tuple[Site, ...]


@cache
def healthy(program: Program) -> Healthy:
    """Run a healthy program, and see what it does."""
    model = program.make()
    places = Places(model)
    functions = Functions(places)
    calls = traced(model, program, places, lambda stack: stack.enter_context(functions))
    operators = tuple(
        Site(call.place, call.shapes, call.outputs[0].is_floating_point())
        for call in calls
        if call.shapes
    )
    return Healthy(calls, operators, tuple(functions.sites))


def traced(
    model: nn.Module,
    program: Program,
    places: Places,
    prepare: Callable[[ExitStack], object] = lambda stack: None,
) -> tuple[Call, ...]:
    """The operators that a model runs."""
    trace = Trace(places)
    with torch.no_grad(), ExitStack() as stack:
        stack.enter_context(places)
        prepare(stack)
        stack.enter_context(trace)
        program.drive(model)
    return tuple(trace.calls)


def captured(
    model: nn.Module, program: Program, places: Places, folder: Path, *, operators: bool
) -> Path:
    """Capture a model as it runs."""
    rmtree(folder, ignore_errors=True)
    config = DumpConfig(dump_path=folder, token_range=range(16), operators=operators, weights=True)
    with torch.no_grad(), places, register_hook(model, config):
        program.drive(model)
    return folder


def golden_of(program: Program, folder: Path, *, operators: bool) -> Path:
    """The capture of a healthy program; made once."""
    place = folder / f"{program.name}-{'op' if operators else 'module'}"
    if not (place / "done").exists():
        model = program.make()
        captured(model, program, Places(model), place, operators=operators)
        (place / "done").touch()
    return place


_sound: dict[tuple[Pair, Path], bool] = {}


def is_sound(pair: Pair, folder: Path) -> bool:
    """True if the healthy programs of a pair agree: what differs else is no bug's."""
    if pair.golden == pair.mine:
        return True
    known = _sound.get((pair, folder))
    if known is None:
        golden, mine = (
            golden_of(each, folder, operators=pair.operators) for each in (pair.golden, pair.mine)
        )
        report = compare(golden, mine, jobs=1)
        known = not report.counts[Verdict.FAIL] and not report.origins
        _sound[pair, folder] = known
    return known
