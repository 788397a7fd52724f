"""Legal and faulty kernels at random shapes: does ``contract`` alarm, and does it find?

    python scripts/bench/legal.py [--draws 2000] [--seed N] [--inductor] [--write] [NAME ...]

Each draw takes the next kernel of :mod:`legal_draws` at a shape, a type and values drawn from the
seed. Legal kernels must never be accused; of the faulty ones 97 % should be. Two kinds of faults do
not count, but are told: whose result is golden's to the bit, and who are *hidden*: not found, and
not further off than a kernel that only keeps what is on the way in 16 bits, given the same inputs.
Each draw is judged twice, by the whole contract and with the quick looks that the command takes
first, and both must say the same. ``--inductor`` adds what torch.compile makes of the same
functions. The exit code is 1 where a legal kernel is accused, too few faults are found or the two
disagree. ``--write`` makes ``docs/legal-results.md``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from figures import figure
from legal_draws import (
    EMULATED,
    Chance,
    Draw,
    Kernel,
    decode,
    emulated,
    functions,
    of_function,
    prefill,
    product,
    ring,
    rotary,
    sdpa,
)
from legal_page import Row, Said, write_page

from ait_llm.judge.outputs import remembered
from ait_llm.judge.standards import Computation, Judgement, Output, standards
from ait_llm.judge.standards.rounding import exact_of
from ait_llm.opcheck.cases import evaluate
from ait_llm.opcheck.golden import GOLDEN, golden_ops

Make = Callable[[Chance], Draw]
WANTED = 97.0
HALF = Kernel(half_scores=True, half_end=True)


def legal(*, inductor: bool) -> Mapping[str, Make]:
    """Kernels that must pass."""
    found: dict[str, Make] = {f"device: {name}": partial(emulated, name=name) for name in EMULATED}
    found |= {f"torch: {name}": partial(of_function, name=name) for name in functions()}
    found |= {"torch: product": product, "torch: fused attention": sdpa}
    found |= {
        "torch: rotary": rotary,
        "float16 steps, rotary": partial(rotary, stored=True),
        "float32 flash, prefill": partial(prefill, kernel=Kernel()),
        "float32 flash, decoding": partial(decode, kernel=Kernel()),
    }
    found |= {
        "float16 scores and end, prefill": partial(prefill, kernel=HALF),
        "float16 scores and end, decoding": partial(decode, kernel=HALF),
        "float16 scores and end, latent": partial(ring, kernel=HALF),
        "float16 end, prefill": partial(prefill, kernel=Kernel(half_end=True)),
        "float16 end, decoding": partial(decode, kernel=Kernel(half_end=True)),
    }
    if inductor:
        for name, (_, _, _, own) in functions().items():
            compiled = torch.compile(own, dynamic=True)
            found[f"Inductor: {name}"] = partial(of_function, name=name, run=compiled)
    return found


def faulty() -> Mapping[str, Make]:
    """Kernels that must fail."""
    return {
        "output in 16 bits after each 32 keys": partial(prefill, kernel=Kernel(blocks=32)),
        "output in 16 bits after each 128 keys": partial(decode, kernel=Kernel(blocks=128)),
        "exponentials 0.1 % off": partial(prefill, kernel=Kernel(exponential=1e-3)),
        "exponentials 1 % off": partial(prefill, kernel=Kernel(exponential=1e-2)),
        # Of heads of 128; a larger error for those of 64.
        "scale 1 over the root of D + 1": partial(prefill, kernel=Kernel(scale=(128 / 129) ** 0.5)),
        "one stale slot of a paged cache": partial(decode, kernel=Kernel(stale=1)),
        "sixteen stale slots of a paged cache": partial(decode, kernel=Kernel(stale=16)),
        "tiny probabilities 2 % off": partial(prefill, kernel=Kernel(tiny=0.02)),
        "tiny probabilities 20 % off": partial(prefill, kernel=Kernel(tiny=0.2)),
        "partial sums in 16 bits, 4 parts": partial(product, split=4),
        "partial sums in 16 bits, 32 parts": partial(product, split=32),
        "product 1 % off": partial(product, factor=1.01),
        "rotary base 1 % off": partial(rotary, base=1.01),
    }


@dataclass(frozen=True, eq=False)
class Judged:
    """What ``contract`` says of a draw.

    Attributes:
        outputs: what the whole of it says of each output.
        quick: what it says of each with quick looks first.
        same: all outputs are golden's to the bit.
        error: the largest relative one.
    """

    outputs: list[Judgement]
    quick: list[Judgement]
    same: bool
    error: float

    @property
    def reason(self) -> str:
        """Why it is accused either way; empty where it is not."""
        return next((one.reason for one in (*self.quick, *self.outputs) if not one.passed), "")

    @property
    def agree(self) -> bool:
        """Whether quick looks change no verdict."""
        return [one.passed for one in self.quick] == [one.passed for one in self.outputs]

    def most(self, value: str) -> float:
        """The largest of a number behind the whole judgements."""
        return max(one.values.get(value, 0.0) for one in self.outputs)


def judge(draw: Draw) -> Judged:
    """Judge a draw both ways."""
    computation = _computation(draw)
    contract, outputs = standards.get("contract"), _outputs(draw, computation)
    whole = [contract(output) for output in outputs]
    computation.verdict_only = True
    quick = [contract(output) for output in outputs]
    same = all(torch.equal(output.golden, output.mine) for output in outputs)
    return Judged(whole, quick, same, _error(outputs))


def _computation(draw: Draw) -> Computation:
    """Golden, computed as the command computes it."""
    golden = golden_ops.get(draw.op)
    run = remembered(lambda params, how: evaluate(golden, draw.inputs, params, how))
    return Computation(golden, draw.inputs, draw.params, partial(run, draw.params))


def _outputs(draw: Draw, computation: Computation) -> list[Output]:
    right = computation.result(GOLDEN).outputs
    return [
        Output(
            f"outtensor{i}", i, False, want, got.reshape(want.shape).to(want.dtype), None,
            computation,
        )
        for i, (want, got) in enumerate(zip(right, draw.outputs, strict=True))
    ]  # fmt: skip


def _error(outputs: list[Output]) -> float:
    """The largest relative one."""
    return max(_distance(exact_of(output), output.mine) for output in outputs)


def _distance(exact: torch.Tensor, mine: torch.Tensor) -> float:
    return float((mine.double() - exact).norm() / exact.norm())


def _run(
    makes: Mapping[str, Make], draws: int, seed: int, *, innocent: bool
) -> tuple[list[Row], list[Said]]:
    names = list(makes)
    total, alarmed, hidden = Counter[str](), Counter[str](), Counter[str]()
    closest: dict[str, float] = {}
    said = []
    for number in range(draws):
        name = names[number % len(names)]
        draw = makes[name](Chance(seed + number))
        judged = judge(draw)
        if judged.same and not innocent:
            continue
        total[name] += 1
        bad = bool(judged.reason)
        alarmed[name] += bad
        closest[name] = max(closest.get(name, 0.0), judged.most("worst"))
        legal_error = 0.0 if innocent or bad else _legal_error(makes[name], seed + number)
        hidden[name] += not innocent and judged.error <= legal_error
        said.append(
            Said(
                name, seed + number, draw.shape, judged.error, judged.most("permitted_error"),
                legal_error, judged.reason, judged.agree,
            )
        )  # fmt: skip
        if number % 100 == 99:
            print(f"  {number + 1} of {draws}", file=sys.stderr, flush=True)
    rows = [
        Row(name, total[name], alarmed[name], hidden[name], closest.get(name, 0.0))
        for name in names
    ]
    return rows, said


def _legal_error(make: Make, seed: int) -> float:
    """How far a legal kernel for 16 bits is off at the same inputs; 0 where there is no other."""
    if not isinstance(make, partial):
        return 0.0
    if "base" in make.keywords:
        draw = make.func(Chance(seed), stored=True, either=True)
    elif isinstance(make.keywords.get("kernel"), Kernel):
        draw = make.func(Chance(seed), kernel=replace(HALF, either=True))
    else:
        return 0.0
    return _error(_outputs(draw, _computation(draw)))


def main() -> int:
    """Draw, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000, help="of each kind, legal and faulty")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inductor", action="store_true", help="compiled kernels too")
    parser.add_argument("--write", action="store_true", help="write docs/legal-results.md")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only kernels with this in them")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)

    def chosen(makes: Mapping[str, Make]) -> Mapping[str, Make]:
        wanted = given.names or [""]
        return {name: make for name, make in makes.items() if any(n in name for n in wanted)}

    good = chosen(legal(inductor=given.inductor))
    bad = chosen(faulty())
    legal_rows, legal_said = _run(good, given.draws if good else 0, given.seed, innocent=True)
    fault_rows, fault_said = _run(bad, given.draws if bad else 0, given.seed, innocent=False)
    alarms = [one for one in legal_said if one.reason]
    missed = [one for one in fault_said if not one.reason]
    apart = [one for one in (*legal_said, *fault_said) if not one.agree]
    drawn, faults = sum(row.draws for row in legal_rows), sum(row.draws for row in fault_rows)
    hidden = sum(row.hidden for row in fault_rows)
    found = 100 * (1 - (len(missed) - hidden) / max(1, faults - hidden))
    for row in (*legal_rows, *fault_rows):
        print(
            f"{row.name:42} {row.draws:5} draws {row.alarms:5} accused {row.hidden:5} hidden"
            f"  worst {row.closest:.3g}"
        )
    for one in (*alarms, *[one for one in missed if one.error > one.legal][:20]):
        print(f"  {one.name} (seed {one.seed}, {one.shape}): {one.reason or 'missed'}")
    for one in apart:
        print(f"  {one.name} (seed {one.seed}, {one.shape}): a quick look changes the verdict")
    print(
        f"{len(alarms)} of {drawn} legal kernels accused; {found:.1f} % of {faults - hidden} "
        f"faults found; {hidden} more are hidden: not further off than a legal kernel; "
        f"quick looks change {len(apart)} of {drawn + faults} verdicts"
    )
    figure("legal kernels accused", len(alarms), f"of {drawn}", at_most=0)
    figure("faults found by contract", found, "%", at_least=WANTED)
    figure("verdicts that quick looks change", len(apart), f"of {drawn + faults}", at_most=0)
    if given.write:
        write_page(given.seed, legal_rows, fault_rows, alarms, missed, apart)
    return int(bool(alarms or apart) or found < WANTED)


if __name__ == "__main__":
    sys.exit(main())
