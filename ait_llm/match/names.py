"""Dotted names of modules, operators and weights that stand for the same thing.

Wrappers put components of their own into every name (``module.`` of DistributedDataParallel,
``_orig_mod.`` of torch.compile), and a hook on an inner model leaves the outer names out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

# Components that no model defines itself.
_WRAPPERS = frozenset(
    {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}
)
_OUTER = "module"  # of DataParallel and DeepSpeed, always next to the root


@dataclass(frozen=True, slots=True)
class NamePair:
    """Two names that stand for the same.

    Attributes:
        golden, mine: the names.
        confidence: 1 for equal names.
        reason: why, in a few words.
    """

    golden: str
    mine: str
    confidence: float
    reason: str


def pair_names(golden: Mapping[str, Hashable], mine: Mapping[str, Hashable]) -> list[NamePair]:
    """Pair names: equal ones, then those equal without wrappers, then with one prefix exchanged.

    Args:
        golden, mine: names of each side to their types, or to None where nothing is known. Names
            of equal types come first; a prefix is exchanged only where types agree.

    Returns:
        Pairs in my order; a name occurs once at most.
    """
    pairs = {
        name: NamePair(name, name, 1.0, "same name")
        for name, kind in mine.items()
        if name in golden and _may_be(golden[name], kind)
    }
    left = [name for name in golden if name not in pairs]
    right = [name for name in mine if name not in pairs]
    if left and right:
        plain = _unique(left, golden), _unique(right, mine)
        for key, name in plain[1].items():
            if key in plain[0]:
                same = plain[0][key] == name
                reason = "same name" if same else "same name without wrappers"
                pairs[name] = NamePair(plain[0][key], name, 1.0 if same else 0.98, reason)
        used = {pair.golden for pair in pairs.values()}
        left = [name for name in left if name not in used]
        right = [name for name in right if name not in pairs]
    if left and right:
        _exchange_prefix(left, right, golden, mine, pairs)
    return [pairs[name] for name in mine if name in pairs]


def without_wrappers(name: str) -> str:
    """The name as the model alone would have it."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    rooted = parts[:1] if parts and parts[0].startswith("root") else []
    rest = parts[len(rooted) :]
    while rest and rest[0] == _OUTER:
        rest = rest[1:]
    return ".".join([*rooted, *rest])


def _unique(names: Sequence[str], types: Mapping[str, Hashable]) -> dict[str, str]:
    """Names by what they are without wrappers; a wrapper gives way to what it wraps."""
    found: dict[str, str] = {}
    for name in names:
        key = without_wrappers(name)
        if key not in found or name.count(".") > found[key].count("."):
            found[key] = name
    return found


def _exchange_prefix(
    left: Sequence[str],
    right: Sequence[str],
    golden: Mapping[str, Hashable],
    mine: Mapping[str, Hashable],
    pairs: dict[str, NamePair],
) -> None:
    """Pair names under the one exchange of prefixes that fits most of them.

    Two exchanges that fit equally many say nothing.
    """
    by_tail: dict[str, list[str]] = defaultdict(list)
    for name in left:
        for tail in _tails(without_wrappers(name)):
            by_tail[tail].append(name)
    votes: Counter[tuple[str, str]] = Counter()
    for name in right:
        plain = without_wrappers(name)
        for tail in _tails(plain):
            partners = by_tail.get(tail, [])
            if len(partners) == 1 and _may_be(golden[partners[0]], mine[name]):
                heads = without_wrappers(partners[0]), plain
                votes[_head(heads[0], tail), _head(heads[1], tail)] += 1
                break
    best = votes.most_common(2)
    if not best or (len(best) == 2 and best[0][1] == best[1][1]):
        return
    old, new = best[0][0]
    partners_of = {without_wrappers(name): name for name in left}
    for name in right:
        plain = without_wrappers(name)
        if plain != new and new and not plain.startswith(f"{new}."):
            continue
        tail = plain[len(new) :].lstrip(".")
        partner = partners_of.get(".".join(filter(None, (old, tail))))
        if partner is not None and _may_be(golden[partner], mine[name]):
            reason = f"same name, {old or 'nothing'} for {new or 'nothing'}"
            pairs[name] = NamePair(partner, name, 0.95, reason)


def _tails(name: str) -> list[str]:
    """Ends of a dotted name, the longest first: the name itself is one."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _head(name: str, tail: str) -> str:
    return name[: len(name) - len(tail)].rstrip(".")


def _may_be(golden: Hashable, mine: Hashable) -> bool:
    return golden is None or mine is None or golden == mine
