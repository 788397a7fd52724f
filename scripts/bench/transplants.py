"""Two bugs of different size at once: which one matters more, and which are needed to heal.

    python scripts/bench/transplants.py --draws 40 --results rows.jsonl --write

Programs are small models of families of ``transformers`` with drawn weights. Golden is the model;
mine is the same, or with another implementation of attention, and has two bugs, drawn by chance,
in two modules. What each bug does to the answer is measured without the tool: the model with that
bug alone against golden. Healthy pairs are drawn, too. ``docs/transplant.md`` has the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

from healthy_runs.any_family import model_of  # noqa: E402

from ait_llm.transplanting.in_process import transplant  # noqa: E402
from ait_llm.transplanting.result import TransplantResult  # noqa: E402

PAGES = [ROOT / "docs" / f"transplant{end}" for end in (".md", ".zh.md")]
BEGIN, END = (
    "<!-- two bugs: written by scripts/bench/transplants.py -->",
    "<!-- end of two bugs -->",
)
FAMILIES = (
    *("llama", "gpt2", "opt", "bloom", "gemma2", "mixtral", "qwen3", "phi3", "mistral"),
    *("gpt_neox", "falcon", "bert", "roberta"),
)
ENCODERS = ("bert", "roberta")
WITHOUT_SDPA = ("gemma2", "bloom")
TYPES = ("float32", "bfloat16")
IDS = torch.tensor([[11, 47, 5, 88, 29, 63, 17, 40, 22, 31, 6, 70]])
_APART = 1.5  # how many times as large the effect of one bug is as that of the other, at least
_CLEAR = 1.5  # an effect so much above or below a limit is on one side of it for certain


@dataclass(frozen=True, slots=True)
class Bug:
    """A fault of one module.

    Attributes:
        where: path of the module.
        kind: of the fault.
        strength: how large.
    """

    where: str
    kind: str
    strength: float

    def plant(self, model: nn.Module) -> None:
        """Put it into a model."""
        module: Any = model.get_submodule(self.where)
        if self.kind == "weight":
            module.weight.data *= 1 + self.strength
        elif self.kind == "rows":
            rows = max(1, int(len(module.weight) * self.strength))
            module.weight.data[:rows] = module.weight.data[:rows].roll(1, 0)
        else:
            forward = module.forward
            module.forward = lambda *args, **kwargs: _scaled(
                forward(*args, **kwargs), 1 + self.strength
            )


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, Tensor):
        return value * factor
    return (value[0] * factor, *value[1:])


@dataclass(frozen=True, slots=True)
class Row:
    """What was said of one draw.

    Attributes:
        program: family, type and attention of mine.
        bugs: module and kind of each, the one that does more to the answer first.
        effects: of each alone: root mean square of the change of the logits, relative.
        status: what was said.
        first: the operator that was ranked first.
        needed: operators of the smallest set.
        runs: of mine.
        suspects: how many there were.
        is_first: the first is of the bug that does more.
        is_smallest: the set has one operator of each bug that is needed, and nothing else.
        error: of the answer of mine, and what was left of it.
    """

    program: str
    bugs: tuple[str, ...]
    effects: tuple[float, ...]
    status: str
    first: str
    needed: tuple[str, ...]
    runs: int
    suspects: int
    is_first: bool
    is_smallest: bool
    error: tuple[float, float]

    @property
    def is_healthy(self) -> bool:
        """No bug was planted."""
        return not self.bugs

    def line(self) -> str:
        """For people."""
        marks = ("first" if self.is_first else "NOT FIRST") + ", "
        marks += "smallest" if self.is_smallest else "NOT SMALLEST"
        if self.is_healthy:
            marks = "ACCUSED" if self.status == "found" else "healthy"
        said = ", ".join(self.needed)
        return (
            f"{self.program}: {self.bugs} {self.effects} -> {self.status}: {said} "
            f"({self.runs} runs, {self.suspects} suspects) {marks}"
        )


def main() -> int:
    """0 if no healthy pair is accused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=0, help="of pairs with two bugs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy", action="store_true", help="also each pair without a bug")
    parser.add_argument("--results", type=Path, help="a file that rows are added to")
    parser.add_argument("--write", action="store_true", help="write its part of the page")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    rows = []
    healthy = _healthy() if given.healthy else iter(())
    for row in itertools.chain(healthy, _draws(given.seed, given.draws)):
        rows.append(row)
        print(row.line(), flush=True)
        if given.results is not None:
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    if given.write:
        publish(rows if given.results is None else _read(given.results))
    return int(any(row.is_healthy and row.status == "found" for row in rows))


def programs() -> Iterator[tuple[str, str, str]]:
    for family in FAMILIES:
        for dtype in TYPES:
            for attention in ("eager",) if family in WITHOUT_SDPA else ("eager", "sdpa"):
                yield family, dtype, attention


def made(family: str, dtype: str, attention: str) -> nn.Module:
    kind = "MASKED_LM" if family in ENCODERS else "CAUSAL_LM"
    model: nn.Module = model_of(kind, family, attention, getattr(torch, dtype))
    return model


def _healthy() -> Iterator[Row]:
    for family, dtype, attention in programs():
        golden, mine = made(family, dtype, "eager"), made(family, dtype, attention)
        result = transplant(golden, mine, input_ids=IDS)
        yield _row(f"{family}/{dtype}/{attention}", [], [], result)


def _draws(seed: int, draws: int) -> Iterator[Row]:
    for number in range(draws):
        rng = random.Random(f"{seed}/{number}")
        while (row := _draw(rng)) is None:
            pass
        yield row


def _draw(rng: random.Random) -> Row | None:
    """What is said of a pair with two bugs; None where their effects are not of different size."""
    family, dtype, attention = rng.choice(list(programs()))
    golden = made(family, dtype, "eager")
    bugs = [drawn_bug(rng, golden) for _ in range(2)]
    if bugs[0].where.startswith(bugs[1].where) or bugs[1].where.startswith(bugs[0].where):
        return None
    effects = [effect(golden, with_bugs(family, dtype, attention, [bug])) for bug in bugs]
    rounding = effect(golden, made(family, dtype, attention))
    if dtype == "bfloat16":
        rounding = max(rounding, 2.0**-8)
    if effects[0] < effects[1]:
        bugs.reverse()
        effects.reverse()
    if effects[0] < _APART * effects[1] or effects[0] < 3 * rounding or effects[0] > 1:
        return None
    mine = with_bugs(family, dtype, attention, bugs)
    result = transplant(golden, mine, input_ids=IDS)
    return _row(f"{family}/{dtype}/{attention}", bugs, effects, result)


def drawn_bug(rng: random.Random, model: nn.Module) -> Bug:
    """Drawn from the modules with a weight of their own that no other module has."""
    weights = Counter(id(each.weight) for each in model.modules() if _has_weight(each))
    names = [
        name
        for name, each in model.named_modules()
        if name and _has_weight(each) and weights[id(each.weight)] == 1
    ]
    kind = rng.choice(("weight", "output", "rows"))
    strength = 10 ** rng.uniform(-2.5, -0.3)
    return Bug(rng.choice(names), kind, strength)


def _has_weight(module: Any) -> bool:
    return isinstance(getattr(module, "weight", None), nn.Parameter)


def with_bugs(family: str, dtype: str, attention: str, bugs: Sequence[Bug]) -> nn.Module:
    model = made(family, dtype, attention)
    for bug in bugs:
        bug.plant(model)
    return model


def effect(golden: nn.Module, mine: nn.Module) -> float:
    """What a model does to the logits, relative to golden's, both without the mean of each row."""
    with torch.no_grad():
        rows = [model(input_ids=IDS).logits.double() for model in (golden, mine)]
    theirs, ours = (each - each.mean(-1, keepdim=True) for each in rows)
    return float((ours - theirs).norm() / theirs.norm())


def _row(
    program: str, bugs: Sequence[Bug], effects: Sequence[float], result: TransplantResult
) -> Row:
    before = math.nan if result.before is None else result.before.error
    floor = 0.0 if result.floor is None else result.floor.error
    first = result.suspects[0].op if result.suspects else ""
    needed = tuple(each.op for each in result.needed)
    is_first = bool(bugs) and is_of(first, bugs[0])
    limit = 1.5 * floor + 0.02 * (before - floor)
    hit = [sum(is_of(op, bug) for op in needed) for bug in bugs]
    wanted: Callable[[float, int], bool] = lambda effect, count: (  # noqa: E731
        count <= 1
        and (count == 1 or effect < _CLEAR * limit)
        and (count == 0 or effect > limit / _CLEAR)
    )
    is_smallest = len(needed) == sum(hit) and all(map(wanted, effects, hit))
    left = math.nan if result.after is None else result.after.error
    return Row(
        program,
        tuple(f"{bug.where} {bug.kind} {bug.strength:.2g}" for bug in bugs),
        tuple(float(f"{effect:.3g}") for effect in effects),
        result.status,
        first,
        needed,
        result.runs,
        len(result.suspects),
        is_first,
        is_smallest,
        (before, left),
    )


def is_of(op: str, bug: Bug) -> bool:
    return f"{op}.".startswith(f"root.{bug.where}.")


def _read(path: Path) -> list[Row]:
    rows = []
    for line in path.read_text("utf-8").splitlines():
        values = json.loads(line)
        rows.append(Row(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}))
    return rows


def publish(rows: Sequence[Row]) -> None:
    """Write the table of the pages."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    text = table(rows, done.stdout.strip())
    for path in PAGES:
        before, mark, rest = path.read_text("utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        if not mark or not end:
            raise SystemExit(f"{path}: the marks of the table are missing")
        path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


def table(rows: Sequence[Row], commit: str) -> str:
    """How many of the draws were told rightly, by family."""
    healthy = [row for row in rows if row.is_healthy]
    lines = [
        f"Until {commit}. Healthy pairs: {len(healthy)}, "
        f"{sum(row.status == 'found' for row in healthy)} accused.",
        "",
        "| family | pairs with two bugs | larger one first | smallest set | runs, at most |",
        "| --- | --- | --- | --- | --- |",
    ]
    faulty = [row for row in rows if not row.is_healthy]
    families = sorted({row.program.partition("/")[0] for row in faulty})
    for name in (*families, "all"):
        some = [row for row in faulty if name in ("all", row.program.partition("/")[0])]
        first, smallest = sum(row.is_first for row in some), sum(row.is_smallest for row in some)
        runs = max((row.runs for row in some), default=0)
        lines.append(f"| {name} | {len(some)} | {first} | {smallest} | {runs} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
