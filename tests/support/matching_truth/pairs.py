"""All pairs of programs whose values are labelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import nn

from matching_truth import adapters, families, litgpt_programs, parallel, recordings
from matching_truth.drives import DRIVES, Generation, once
from matching_truth.program import Captured, Drive, Program, capture
from matching_truth.scoring import (
    EXACT,
    Real,
    Score,
    StepOf,
    own_step,
    score_captures,
    whole,
)

SIZES = ("distinct", "equal")
LEVELS = {False: "module", True: "op"}
SAME_LIBRARY, OTHER_LIBRARY = 0.99, 0.95


def floor_of(name: str) -> float:
    """Recall that is asked of a pair, in [0, 1]: less between two libraries."""
    return OTHER_LIBRARY if name.startswith(("d/", "e/")) else SAME_LIBRARY


Source = Callable[[Path], Captured]


@dataclass(frozen=True)
class Pair:
    """Two programs of one model.

    Attributes:
        name: ``kind/family/what differs``.
        golden, mine: make the captures, or find them, in a folder.
        tolerance: of the truth, relative.
        step_of: forward pass of a tensor of mine, where the capture counts it to another one.
        real: what of a golden tensor is no padding.
    """

    name: str
    golden: Source
    mine: Source
    tolerance: float = EXACT
    step_of: StepOf = own_step
    real: Real = whole

    def is_met(self, found: Score) -> bool:
        """True if nothing is wrong and enough was found."""
        return found.wrong == 0 and found.recall >= floor_of(self.name)


def of(program: Program) -> Source:
    """The captures of a program."""
    return partial(capture, program)


def transformer(
    family: str,
    sizes: str = "distinct",
    attention: str = "eager",
    drive: tuple[str, Drive] | None = None,
    dtype: torch.dtype = torch.float32,
    *,
    operators: bool = False,
) -> Program:
    """A program of ``transformers``; by default one pass."""
    how, call = drive or ("once", DRIVES.get(family, once))
    words = [family, sizes, attention, how, str(dtype).removeprefix("torch.")]
    return Program(
        "-".join([*words, *(["op"] * operators)]),
        partial(families.make, family, sizes, attention),
        call,
        dtype,
        operators,
    )


ONE = ("one", Generation())
UNCACHED = ("one-uncached", Generation(cache=False))
LEFT = ("four-left", Generation(4))
RIGHT = ("four-right", Generation(4, "right"))


def _themselves() -> Iterator[Pair]:
    for family in families.FAMILIES:
        for sizes in ("distinct", "equal"):
            for operators in (False, True):
                program = transformer(family, sizes, operators=operators)
                # the run again, so that nothing is shared but the model
                again = replace(program, name=f"{program.name}-again")
                level = "op" if operators else "module"
                yield Pair(f"a/{family}/{sizes}-{level}", of(program), of(again))


def _attention() -> Iterator[Pair]:
    for family in families.FAMILIES:
        if family in ("mamba", "gemma2", "gpt-oss"):  # none, or only eager has caps and sinks
            continue
        for sizes in ("distinct", "equal"):
            for operators in (False, True):
                golden, mine = (
                    transformer(family, sizes, attention, operators=operators)
                    for attention in ("eager", "sdpa")
                )
                level = "op" if operators else "module"
                yield Pair(f"b/{family}/{sizes}-{level}", of(golden), of(mine))


# Padding on the right stays in the cache and takes up places of the window: another computation.
WINDOWED = ("gemma2", "gemma3", "gpt-oss")


def _calls() -> Iterator[Pair]:
    for family in families.FAMILIES:
        if family in DRIVES:
            continue
        base = of(transformer(family, drive=ONE))
        for name, drive in (("left", LEFT), ("right", RIGHT), ("uncached", UNCACHED)):
            if name == "right" and family in WINDOWED:
                continue
            yield Pair(f"c/{family}/{name}", base, of(transformer(family, drive=drive)))
        for name in ("bfloat16", "float16"):
            mine = transformer(family, drive=ONE, dtype=getattr(torch, name))
            yield Pair(f"c/{family}/{name}", base, of(mine))


def _litgpt() -> Iterator[Pair]:
    for family, sizes, operators in product(litgpt_programs.CONFIGS, SIZES, (False, True)):
        attention = "eager" if family == "gemma2" else "sdpa"
        golden = transformer(family, sizes, attention, operators=operators)
        program = litgpt_programs.program(family, sizes, operators=operators)
        if litgpt_programs.is_installed():
            mine = of(program)
        elif (family, sizes, operators) in litgpt_programs.RECORDED:
            mine = partial(recordings.recorded_litgpt, program.name)
        else:
            continue
        yield Pair(f"d/{family}/{sizes}-{LEVELS[operators]}", of(golden), mine)


def _engines() -> Iterator[Pair]:
    for family in recordings.FAMILIES:
        golden, mine = (
            partial(recordings.recorded, family, library) for library in ("transformers", "vllm")
        )
        yield Pair(f"e/{family}/module", golden, mine, *recordings.TRUTH)
    for family in recordings.OPERATORS:
        golden, mine = (
            partial(recordings.recorded_operators, family, library)
            for library in ("transformers", "vllm")
        )
        yield Pair(f"e/{family}/op", golden, mine, *recordings.TRUTH)
    for family in recordings.RANKS:
        golden = partial(recordings.recorded, family, "transformers")
        mine = partial(recordings.recorded_ranks, family)
        yield Pair(f"e/{family}/ranks", golden, mine, *recordings.TRUTH)


def _ranks(family: str, sizes: str, level: str, folder: Path) -> Captured:
    place = folder / f"ranks-{family}-{sizes}"
    if not (place / "done").exists():
        parallel.run_ranks(place, family, sizes)
        (place / "done").touch()
    return Captured(place / level / "dump", place / level / "exact")


def _parallel() -> Iterator[Pair]:
    for family in ("llama", "qwen3", "mistral"):
        for sizes in ("distinct", "equal"):
            for level in parallel.LEVELS:
                golden = transformer(family, sizes, operators=level == "op")
                mine = partial(_ranks, family, sizes, level)
                yield Pair(f"f/{family}/{sizes}-{level}", of(golden), mine)


def _lora() -> Iterator[Pair]:
    for family in ("llama", "qwen3"):
        for sizes in ("distinct", "equal"):
            for operators in (False, True):
                base = partial(families.make, family, sizes)
                level = "op" if operators else "module"
                ways = [("lora", adapters.with_lora, adapters.merge)]
                if adapters.has_peft():
                    ways.append(("peft", adapters.with_peft, adapters.merge_peft))
                for way, add, merge in ways:
                    name = f"{way}-{family}-{sizes}-{level}"
                    apart = Program(name, partial(_composed, add, base), once, operators=operators)
                    merged = replace(apart, name=f"{name}-merged", prepare=merge)
                    yield Pair(f"g/{family}/{way}-{sizes}-{level}", of(merged), of(apart))


def _composed(add: Callable[[nn.Module], nn.Module], base: Callable[[], nn.Module]) -> nn.Module:
    return add(base())


def _int8() -> Iterator[Pair]:
    for family in ("llama", "gpt-neox"):
        for sizes in ("distinct", "equal"):
            for operators in (False, True):
                level = "op" if operators else "module"
                base = transformer(family, sizes, operators=operators)
                # a product is not its sum with a bias: zeros would make both one number
                base = replace(base, make=partial(_composed, adapters.with_biases, base.make))
                golden = replace(base, name=f"{base.name}-as-int8", prepare=adapters.as_int8)
                mine = replace(base, name=f"{base.name}-int8", prepare=adapters.int8)
                yield Pair(f"h/{family}/{sizes}-{level}", of(golden), of(mine))


def _all() -> Iterator[Pair]:
    yield from _themselves()
    yield from _attention()
    yield from _calls()
    yield from _litgpt()
    yield from _engines()
    yield from _parallel()
    yield from _lora()
    if adapters.has_quanto():
        yield from _int8()


PAIRS = {pair.name: pair for pair in _all()}


def score(name: str, folder: Path) -> Score:
    """Capture a pair, match it and count.

    Args:
        name: key of :data:`PAIRS`.
        folder: where captures are kept for other pairs.
    """
    pair = PAIRS[name]
    captures = pair.golden(folder), pair.mine(folder)
    return score_captures(*captures, pair.tolerance, pair.step_of, pair.real)
