"""What had to be compared and was not, and what no comparison can look at.

Two programs of one model do not compute the same values throughout: one fuses what the other writes
out, keeps a table where the other makes it anew, or hands on a mask in another form. Such a value
has no counterpart by nature. It is counted, and decides nothing.

A tensor without a partner counts as missing where its dump, or the other one, shows that it should
have had one: the same tensor of another layer was compared and what answers that one there is not
compared here (``siblings``), its counterpart was found and could not be brought to its shape, it
was not saved, or both sides are compiled graphs and the matcher does not say that it can have none
(unless the compiler took one model in other pieces on each side: then they are two programs, too).
And whatever is left out: something of each layer, and what the program returns last, must have been
compared, else the comparison is incomplete.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ait_llm.compare.siblings import Siblings, sides_of
from ait_llm.core.comparison import Comparison, Problem, TensorRecord, Verdict
from ait_llm.match.model import SELF_CHECK
from ait_llm.match.programs.reasons import FOLDED, OF_OTHER_TOKENS

_NUMBER = re.compile(r"\d+")
_LAYER = re.compile(r"^(.*?\.\d+)(?:\.|$)")
# Calls of functions, `Functional.linear.3`, are numbered through the whole program.
_CALL = re.compile(r"^([A-Z]\w*\.\w+)\.\d+(?:\.(?:forward|backward))?$")
_FUNCTION = re.compile(r"^(?!Module\.)[A-Z]\w*\.\w+$")
# Calls of modules, `Module.model.norm.RMSNorm.forward.0`, have the number of the call behind them.
_MODULE_CALL = re.compile(r"^Module\.(.*)\.\w+\.(?:forward|backward)\.\d+$")
_COMPARED = (Verdict.PASS, Verdict.FAIL)
_SHOWN = 3
_WHOLE = "root"  # how captures call the whole model
_HEADS = 4  # dims of the keys and values of attention
_PAST = ("past", "cache")  # how results are called that hand them on


def mark_not_comparable(
    comparisons: Sequence[Comparison], *, one_library: bool = False
) -> list[Comparison]:
    """The comparisons, with those marked that stand for tensors without a counterpart by nature.

    Args:
        comparisons: of the whole report.
        one_library: both sides ran the same operators; one that is missing as a whole was left out.
    """
    if all(item.verdict is not Verdict.SKIPPED for item in comparisons):
        return list(comparisons)
    siblings = Siblings(comparisons)
    graphs = _are_one_graph(comparisons)
    whole = (
        {_call(*one) for item in comparisons for one in sides_of(item)} if one_library else set()
    )
    whole -= {
        _call(*one) for item in comparisons if item.verdict in _COMPARED for one in sides_of(item)
    }
    return [
        replace(item, comparable=False)
        if _is_by_nature(item, siblings, graphs=graphs)
        and _call(*next(sides_of(item))) not in whole
        else item
        for item in comparisons
    ]


def uncompared_parts(comparisons: Sequence[Comparison]) -> Iterator[Problem]:
    """Layers of a program of which nothing was compared, and results that were not."""
    widths = _widths_of_results(comparisons)
    for side in ("golden", "mine"):
        found: dict[tuple[int, int], list[tuple[TensorRecord, bool]]] = defaultdict(list)
        others = widths["mine" if side == "golden" else "golden"]
        is_other = bool(others and widths[side]) and others.isdisjoint(widths[side])
        for item in comparisons:
            record = item.golden if side == "golden" else item.mine
            if record is not None and record.role == "out":
                compared = item.verdict in _COMPARED or item.verdict is Verdict.ERROR
                # measured, and different by another choice that both sides made rightly
                compared |= (
                    item.golden is not None and item.mine is not None and not item.comparable
                )
                compared |= item.reason.endswith((OF_OTHER_TOKENS, FOLDED))
                found[record.pid, record.step].append((record, compared))
        if all(compared for outputs in found.values() for _, compared in outputs):
            continue
        for names, steps in _by_steps(found):
            if is_other and names == [_WHOLE]:
                continue
            more = f" and of {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            yield Problem(
                "golden" if side == "golden" else "mine",
                f"nothing was compared of {', '.join(names[:_SHOWN])}{more}{steps}",
            )


def _widths_of_results(comparisons: Sequence[Comparison]) -> Mapping[str, set[int]]:
    """Columns of what each whole program returns; of golden's only where it was compared.

    An engine may return hidden states, and make golden's result, the logits, of them later.
    """
    found: dict[str, set[int]] = defaultdict(set)
    for item in comparisons:
        for side, record in sides_of(item):
            is_result = record.op == _WHOLE and record.role == "out" and _is_float(record)
            if is_result and record.shape and (side == "mine" or item.verdict in _COMPARED):
                found[side].add(record.shape[-1])
    return found


def other_results(comparisons: Sequence[Comparison]) -> Iterator[Problem]:
    """Results of two programs of one class that are of another shape or type.

    Only of runs whose first results have one shape: batches and padding are those of golden then.
    """
    found: dict[tuple[str, int, int], dict[int, TensorRecord]] = defaultdict(dict)
    runs: list[tuple[TensorRecord, TensorRecord]] = []
    for item in comparisons:
        for side, record in sides_of(item):
            if record.op == _WHOLE and record.role == "out":
                found[side, record.pid, record.step][record.index] = record
        golden, mine = item.golden, item.mine
        if golden is not None and mine is not None and _are_first_results(golden, mine):
            runs.append((golden, mine))
    told: dict[str, None] = {}
    for golden, mine in runs:
        theirs = found["golden", golden.pid, golden.step]
        for index, ours in sorted(found["mine", mine.pid, mine.step].items()):
            other = theirs.get(index)
            if other is None or not index or None in (ours.shape, other.shape):
                continue
            if _is_cache(ours) or _is_cache(other) or ours.label != other.label:
                continue
            if ours.shape != other.shape:
                text = f"{list(ours.shape or ())} instead of {list(other.shape or ())}"
                told[f"{ours.name} of {_WHOLE} has the shape {text}"] = None
            elif ours.dtype and other.dtype and _is_float(ours) != _is_float(other):
                text = f"{ours.dtype.label} instead of {other.dtype.label}"
                told[f"{ours.name} of {_WHOLE} is of the type {text}"] = None
    yield from (Problem("mine", text) for text in told)


def _is_cache(record: TensorRecord) -> bool:
    """True for keys and values that a program hands on: how many is up to it."""
    return len(record.shape or ()) >= _HEADS or any(
        word in text for word in _PAST for text in (record.label, Path(record.path).name)
    )


def _are_first_results(golden: TensorRecord, mine: TensorRecord) -> bool:
    return all(
        each.op == _WHOLE and each.role == "out" and not each.index for each in (golden, mine)
    ) and (golden.op_type, golden.shape) == (mine.op_type, mine.shape)


def _by_steps(
    found: Mapping[tuple[int, int], Sequence[tuple[TensorRecord, bool]]],
) -> Iterator[tuple[list[str], str]]:
    """Parts of which nothing was compared, those of the same steps together, and these in words.

    Args:
        found: outputs by process and step, and whether they were compared.
    """
    missing: dict[str, list[int]] = defaultdict(list)
    every: dict[str, set[int]] = defaultdict(set)
    for (_, step), outputs in found.items():
        for record, _compared in outputs:
            every[_part(record)].add(step)
        for part in _uncompared(outputs):
            missing[part].append(step)
    groups: dict[str, list[str]] = defaultdict(list)
    for part, steps in missing.items():
        own = sorted(set(steps))
        groups["" if set(own) == every[part] else _in_steps(own)].append(part)
    for words, names in groups.items():
        yield names, words


def _in_steps(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f" in step {steps[0]}"
    if steps[-1] - steps[0] + 1 == len(steps):
        return f" in steps {steps[0]} to {steps[-1]}"
    return f" in {len(steps)} steps, first in step {steps[0]}"


def _uncompared(outputs: Iterable[tuple[TensorRecord, bool]]) -> Iterator[str]:
    parts: dict[str, bool] = {}  # of an operator outside of layers, the module whose code calls it
    last: dict[bool, tuple[int, str, bool]] = {}  # of all operations, and of those with floats
    returned = False
    results: set[bool] = set()  # of the whole program: whether they were compared
    for record, compared in outputs:
        part, is_float = _part(record), _is_float(record)
        if not is_float and not record.op_type.startswith("aten."):
            continue  # calls are those of all the program, its choice of tokens included
        if is_float:  # layers may differ in how they keep places and lengths
            is_operator = record.op_type.count(".") > 1
            module = part.removesuffix(f".{record.op_type}") if is_operator else part
            parts[module] = parts.get(module, False) or compared
        for kind in {False, is_float} if part else ():
            place, _, before = last.get(kind, (-1, "", False))
            if record.order >= place:  # by its place: an earlier one may be called like it
                last[kind] = record.order, part, compared or (record.order == place and before)
        if is_float and record.op == _WHOLE:
            results.add(compared)
        if compared and record.op == _WHOLE and record.index == 0:
            returned = True  # the last module may give what the program goes on from
    around = {path for part in parts if _LAYER.match(part) for path in _paths_of(part)[:-1]}
    missing = [
        part for part, compared in parts.items() if not compared and _is_numbered(part, around)
    ]
    if results == {False}:
        missing.append(_WHOLE)
    if not returned:
        missing += [part for _, part, compared in last.values() if not compared]
    yield from dict.fromkeys(missing)


def _is_numbered(part: str, around: Collection[str]) -> bool:
    """True for one of several layers: a number is in its name, and not in that of what has them.

    So ``dinov2`` is no layer, but ``conv2`` is; ``Functional.conv1d`` is a function.
    """
    return not _FUNCTION.match(part) and any(
        _NUMBER.search(path.rpartition(".")[2]) and path not in around for path in _paths_of(part)
    )


def _paths_of(part: str) -> list[str]:
    words = part.split(".")
    return [".".join(words[: place + 1]) for place in range(len(words))]


def _part(record: TensorRecord) -> str:
    """The layer of a module or of one of its operators; outside of layers the module itself.

    Of a call it is the function, for nothing tells its layer.
    """
    if record.graph:  # the number of a kernel tells its launches apart
        return ""
    call = _CALL.match(record.op)
    if call is not None:
        return call[1]
    module = _MODULE_CALL.match(record.op)
    path = record.op if module is None else f"Module.{module[1]}"
    layer = _LAYER.match(path)
    if layer is not None:
        return layer[1]
    return "" if "." not in path else path


def _is_by_nature(item: Comparison, siblings: Siblings, *, graphs: bool) -> bool:
    if item.verdict is not Verdict.SKIPPED or (item.golden is None) == (item.mine is None):
        return False
    side, record = next(sides_of(item))
    if item.lost or graphs:  # of two compiled graphs each node is known, and should be there
        return False
    return record.role in ("in", "out") and not siblings.show_a_gap(side, record)


def _are_one_graph(comparisons: Sequence[Comparison]) -> bool:
    """True if both sides ran compiled graphs, one in each pass, whose nodes answer each other."""
    runs: dict[str, set[tuple[int, ...]]] = {"golden": set(), "mine": set()}
    passes: dict[str, set[tuple[int, ...]]] = {"golden": set(), "mine": set()}
    names: dict[str, int] = {}
    for item in comparisons:
        if item.relation == SELF_CHECK:
            continue  # both tensors are mine
        for side, record in sides_of(item):
            if record.graph:
                one = record.rank, record.device, record.pid, record.step
                passes[side].add(one)
                runs[side].add(
                    (*one, names.setdefault(record.graph, len(names)), record.graph_step)
                )
    return all(passes.values()) and all(len(runs[side]) == len(passes[side]) for side in runs)


def _call(side: str, record: TensorRecord) -> object:
    """The execution that a tensor belongs to."""
    return side, record.device, record.pid, record.step, record.order, record.op


def _is_float(record: TensorRecord) -> bool:
    return record.dtype is not None and record.dtype.is_floating
