"""Files and weights by their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

from ait_llm.match.model import Match, MatchOptions, Unmatched, matchers
from ait_llm.match.operators import Finding, Placed, placed
from ait_llm.program.one_pass import Pass


@matchers.register("by_file")
def by_file(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Files of the same relative path, then of the same path without suffix; tensors by name.

    Two single files belong together whatever they are called.
    """
    first, second = placed(golden), placed(mine)
    if golden.traits.holds == mine.traits.holds == "file":
        yield from _contents(first[0], second[0], "the two files given")
        return
    partners = {each.operation.name: each for each in second}
    left = []
    for each in first:
        partner = partners.pop(each.operation.name, None)
        if partner is None:
            left.append(each)
        else:
            yield from _contents(each, partner, "same path")
    by_stem: dict[str, list[Placed]] = defaultdict(list)
    for each in partners.values():
        by_stem[_stem(each)].append(each)
    rivals: dict[str, int] = defaultdict(int)
    for each in left:
        rivals[_stem(each)] += 1
    for each in left:
        found = by_stem.get(_stem(each), [])
        if len(found) == 1 and rivals[_stem(each)] == 1:
            yield from _contents(each, found[0], "same path without suffix")


def _stem(each: Placed) -> str:
    return str(PurePath(each.operation.name).with_suffix(""))


def _contents(golden: Placed, mine: Placed, reason: str) -> Iterator[Match | Unmatched]:
    """Tensors of two files by name; sole tensors belong together whatever they are called."""
    first, second = list(golden.tensors), list(mine.tensors)
    if len(first) == len(second) == 1:
        yield from Finding("by_file", 1.0, reason).match((golden, first[0]), (mine, second[0]))
        return
    partners = {tensor.name: tensor for tensor in second}
    for tensor in first:
        partner = partners.get(tensor.name)
        if partner is None:
            yield golden.unmatched(
                "golden", tensor, f"my file {mine.operation.name} holds no tensor of that name"
            )
        else:
            finding = Finding("by_file", 1.0, f"{reason}, same name")
            yield from finding.match((golden, tensor), (mine, partner))
    names = {tensor.name for tensor in first}
    for tensor in second:
        if tensor.name not in names:
            yield mine.unmatched(
                "mine", tensor, f"the golden file {golden.operation.name} holds none of that name"
            )
