"""What a mapping says about two runs, and whether its names are those of the dumps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ait_llm.errors import FormatError
from ait_llm.match.mapping.names import Names
from ait_llm.match.mapping.patterns import Pattern, as_text
from ait_llm.match.mapping.resolve import SIDES, Resolver
from ait_llm.match.mapping.text import Line, UserMapping
from ait_llm.match.model import Match, SideName, Source, Unmatched


def pairs_of(mapping: UserMapping, golden: Names, mine: Names) -> Iterator[Match | Unmatched]:
    """All pairs that a mapping names in two runs, and what it names without a partner."""
    resolver = Resolver(golden, mine)
    first_only: set[tuple[object, object]] = set()
    seen: set[object] = set()
    missing: list[Unmatched] = []
    for line in mapping.lines:
        if not resolver.applies(line):
            continue
        for found in resolver.matches(line):
            if isinstance(found, Unmatched):
                missing.append(found)
                continue
            both = _key(found.golden), _key(found.mine)
            viewed = *both, found.golden.views, found.mine.views
            if both in first_only or viewed in seen:
                continue
            seen.add(viewed)
            if line.first_only:
                first_only.add(both)
            yield found
    yield from missing


def check_names(mapping: UserMapping, passes: Iterable[tuple[Names, Names]]) -> None:
    """Refuse a mapping with a line that names nothing on one side, in any pair of passes.

    Raises:
        FormatError: there is one; the reason says which names come nearest.
    """
    if mapping.allow_missing:
        return
    resolvers = [(Resolver(*names), names) for names in passes]
    for line in mapping.lines:
        spoken = [each for each in resolvers if each[0].applies(line)]
        for place, side in enumerate((line.golden, line.mine)):
            for term in side if spoken else ():
                for alternative, pattern in enumerate(term.ops):
                    hits = (
                        hit
                        for resolver, _ in spoken
                        for tensor in range(len(term.tensors or ((),)))
                        for hit in resolver.hits(term, place, alternative, tensor, shared=True)
                    )
                    if next(hits, None) is None:
                        raise _unknown(line, spoken[0][1][place], SIDES[place], pattern)


def _unknown(line: Line, names: Names, side: SideName, pattern: Pattern) -> FormatError:
    whose = "the golden dump" if side == "golden" else "my dump"
    name = as_text(pattern)
    op = next((op for _, op in names.find(pattern)), None)
    if op is None:
        nearest = ", ".join(names.nearest(name)) or "none"
        return FormatError(
            line.place, f"{whose} has no operation {name!r}", f"The nearest names are {nearest}"
        )
    labels = ", ".join(list(op.labels())[:8])
    return FormatError(
        line.place,
        f"{op.name!r} of {whose} has no such tensor or call",
        f"Its tensors are {labels}",
    )


def _key(source: Source) -> tuple[int, str]:
    return source.record.order, source.record.name
