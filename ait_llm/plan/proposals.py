"""Cheaper captures, and what each of them can still show."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ait_llm.core import OpId, StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.plan.amounts import Estimate
from ait_llm.plan.atb_sizes import AtbSizes
from ait_llm.plan.graph_survey import GraphSizes
from ait_llm.plan.torch_sizes import TorchSizes
from ait_llm.probe import ProbeConfig, TensorPart

Options = ProbeConfig | TorchSettings
Sizes = AtbSizes | TorchSizes | GraphSizes

SHOWN = 5
"""Proposals that are made at most."""
_MOST_IDS = 200  # on a command line
_MOST_PARTS = 40  # where few layers have many operations
_FEW_STEPS = 2


@dataclass(frozen=True, slots=True)
class Proposal:
    """A capture that could be run instead.

    Attributes:
        options: what to capture.
        estimate: what it would write.
        power: how much of what the full capture shows it still shows, in (0, 1].
        keeps: what it can show, in a sentence.
    """

    options: Options
    estimate: Estimate
    power: float
    keeps: str


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of the ways to capture less of one kind of thing."""

    options: Options
    power: float
    keeps: str


def proposals(sizes: Sizes, asked: Options, budget: int) -> tuple[list[Proposal], Proposal]:
    """Captures that fit, those that show most first, and the smallest one of all.

    One that shows less than another one of its kind and writes no less is left out.

    Args:
        sizes: gives estimates.
        asked: the capture that was asked for.
        budget: bytes that may be written.
    """
    found = [
        Proposal(choice.options, estimate_of(sizes, choice.options), choice.power, choice.keeps)
        for choice in _candidates(sizes, asked)
    ]
    found = [each for each in found if each.estimate.tensors > 0] or found
    smallest = min(found, key=lambda each: each.estimate.bytes)
    fitting = sorted(
        (each for each in found if each.estimate.bytes <= budget),
        key=lambda each: (-each.power, each.estimate.bytes),
    )
    # Numbers of tensors and their values show different things, so neither replaces the other.
    values = _useful([each for each in fitting if not _without_values(each.options)])
    numbers = _useful([each for each in fitting if _without_values(each.options)])
    shown = values[: max(SHOWN - 2, SHOWN - len(numbers))]
    shown += numbers[: SHOWN - len(shown)]
    return sorted(shown, key=lambda each: (-each.power, each.estimate.bytes)), smallest


def _useful(fitting: Sequence[Proposal]) -> list[Proposal]:
    """Those that write less than all that show more."""
    useful: list[Proposal] = []
    for each in fitting:
        if all(each.estimate.bytes < other.estimate.bytes for other in useful):
            useful.append(each)
    return useful


def _without_values(options: Options) -> bool:
    if isinstance(options, ProbeConfig):
        return "tensor" not in options.types or options.description_only
    return not (options.is_compiled or options.data)


def estimate_of(sizes: Sizes, options: Options) -> Estimate:
    """What a capture would write; the options are those of the kind that was looked at."""
    if isinstance(sizes, AtbSizes):
        assert isinstance(options, ProbeConfig)
        return sizes.estimate(options)
    assert isinstance(options, TorchSettings)
    return sizes.estimate(options)


def _candidates(sizes: Sizes, asked: Options) -> Iterator[_Choice]:
    """Every combination of what, which sides, which steps and which content."""
    for level in _levels(sizes, asked):
        for content in _contents(level):
            for side in _sides(content):
                yield from _steps(sizes, side)


def _levels(sizes: Sizes, asked: Options) -> Iterator[_Choice]:
    yield _Choice(asked, 1.0, f"names the {_what(asked)}")
    if isinstance(sizes, AtbSizes) and isinstance(asked, ProbeConfig):
        yield from _atb_levels(sizes, asked)
    elif isinstance(sizes, TorchSizes) and isinstance(asked, TorchSettings):
        yield from _torch_levels(sizes, asked)


def _atb_levels(sizes: AtbSizes, asked: ProbeConfig) -> Iterator[_Choice]:
    if asked.operation_ids or asked.operation_names or not asked.captures_tensors:
        return
    units = [unit for unit in sizes.survey.units if not unit.is_kernel]
    operations = sorted({unit.ids for unit in units})
    leaves = sorted({unit.ids for unit in units if not unit.is_graph})
    tops = sorted({ids for ids in operations if len(ids) == 1})
    if len(operations) <= _MOST_PARTS:
        yield _only(asked, operations, 0.95, "names the operator, not its kernel")
    if len(leaves) <= _MOST_PARTS and len(leaves) < len(operations):
        yield _only(asked, leaves, 0.9, "names the operator, not its kernel")
    types: dict[tuple[int, ...], str] = {
        unit.ids: unit.type for unit in units if len(unit.ids) == 1
    }
    repeated = {name for name, count in Counter(types.values()).items() if count > 2}
    for stride in (2, 4, 8, 16):
        chosen = _every(tops, types, repeated, stride)
        if repeated and len(chosen) < len(tops) and len(chosen) <= _MOST_IDS:
            ids = tuple(map(OpId, chosen))
            yield _Choice(
                replace(asked, operation_ids=ids),
                0.8 / stride + 0.3,
                f"names the operator within each {_ordinal(stride)} layer, elsewhere a stretch "
                f"of {stride} layers",
            )
    if len(tops) <= _MOST_IDS and len(tops) < len(operations):
        yield _only(asked, tops, 0.5, "names the layer, not the operator in it")


def _what(options: Options) -> str:
    """What a capture tells apart."""
    if isinstance(options, ProbeConfig) or options.operators:
        return "operator"
    if options.is_compiled:
        return "kernel" if options.is_inductor else "node"
    return "module"


def _only(asked: ProbeConfig, ids: Sequence[tuple[int, ...]], power: float, keeps: str) -> _Choice:
    options = replace(asked, operation_ids=tuple(map(OpId, ids)), with_children=False)
    return _Choice(options, power, keeps)


def _every(
    tops: Sequence[tuple[int, ...]],
    types: dict[tuple[int, ...], str],
    repeated: set[str],
    stride: int,
) -> list[tuple[int, ...]]:
    """Operations that stand alone, and every so many of those that are repeated."""
    seen: Counter[str] = Counter()
    chosen = []
    for ids in tops:
        name = types[ids]
        if name not in repeated or seen[name] % stride == 0:
            chosen.append(ids)
        seen[name] += 1
    return chosen


def _torch_levels(sizes: TorchSizes, asked: TorchSettings) -> Iterator[_Choice]:
    if asked.operators:
        without = tuple(name for name in asked.types if name != "torch-op") or ("torch",)
        modules = replace(asked, types=without)
        yield _Choice(modules, 0.7, "names the module, not the operator in it")
    else:
        modules = asked
    if asked.module_names or asked.layers or asked.type_prefixes:
        return
    layers, pattern = _layers_of(sizes)
    for stride in (2, 4, 8, 16):
        if len(layers) > stride:
            numbers = tuple((number, number) for number in layers[::stride])
            yield _Choice(
                replace(asked, layers=numbers),
                0.8 / stride + 0.3,
                f"names the {_what(asked)} within each {_ordinal(stride)} layer, elsewhere a "
                f"stretch of {stride} layers",
            )
    if len(layers) > 1:
        blocks = replace(modules, module_names=(pattern,))
        yield _Choice(blocks, 0.4, "names the layer, not the module in it")


def _layers_of(sizes: TorchSizes) -> tuple[list[int], str]:
    """Numbers of the layers of the longest list of modules, and a pattern that means them."""
    lists: dict[str, set[int]] = defaultdict(set)
    for path in sizes.paths:
        match = re.fullmatch(r"(\D+)\.([0-9]+)", path)
        if match is not None:
            lists[match[1]].add(int(match[2]))
    if not lists:
        return [], ""
    longest = max(lists, key=lambda name: len(lists[name]))
    return sorted(lists[longest]), f"re:^{re.escape(longest)}\\.[0-9]+$"


def _contents(choice: _Choice) -> Iterator[_Choice]:
    yield choice
    options = choice.options
    keeps = f"{choice.keeps} by statistics, shows no single element"
    if isinstance(options, ProbeConfig):
        if "tensor" in options.types and not options.description_only:
            others = tuple(name for name in options.types if name not in ("tensor", "stats"))
            types = ("stats", *others)
            yield _Choice(replace(options, types=types), 0.45 * choice.power, keeps)
    elif not options.is_compiled and options.data:
        types = tuple(name for name in options.types if name == "torch-op")
        statistics = replace(options, types=("torch-stats", *types), weights=False)
        # Without "torch", operators alone are recorded where they are asked for.
        yield _Choice(statistics, 0.45 * choice.power, keeps)


def _sides(choice: _Choice) -> Iterator[_Choice]:
    yield choice
    options = choice.options
    keeps = f"{choice.keeps}; inputs are known as outputs of others"
    if isinstance(options, ProbeConfig):
        if options.tensor_part is TensorPart.BOTH and options.captures_tensors:
            outputs = replace(options, tensor_part=TensorPart.OUTPUTS)
            yield _Choice(outputs, 0.85 * choice.power, keeps)
    elif options.inputs and options.outputs:
        yield _Choice(replace(options, inputs=False), 0.85 * choice.power, keeps)


def _steps(sizes: Sizes, choice: _Choice) -> Iterator[_Choice]:
    yield choice
    steps = choice.options.steps
    number = sizes.steps(steps)
    for few in (_FEW_STEPS, 1):
        if number <= few:
            continue
        first = _first(steps, few)
        text = f"at the first {few} steps alone" if few > 1 else "at the first step alone"
        yield _Choice(
            replace(choice.options, steps=first),
            (0.75 if few > 1 else 0.5) * choice.power,
            f"{choice.keeps}; {text}",
        )


def _first(steps: StepRange, count: int) -> StepRange:
    """The first steps of a range."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(steps.intervals):
        taken = min(last - first + 1, count)
        found.append((first, first + taken - 1))
        count -= taken
        if not count:
            break
    return StepRange(tuple(found))


def _ordinal(number: int) -> str:
    return {2: "second", 4: "fourth", 8: "eighth", 16: "sixteenth"}[number]
