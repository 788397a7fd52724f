"""Writing a mapping and reading it back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ait_llm.match.choose import match_runs
from ait_llm.match.mapping.drafts import same_effect
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.pairing import pair_runs
from ait_llm.match.saved_mapping import read_mapping, write_mapping
from ait_llm.match.scenario import find_scenario
from ait_llm.program.one_pass import Pass

Found = Sequence[tuple[Pass, Pass, list[Match]]]


def lines_of(path: Path) -> list[str]:
    """The lines of a mapping that say something."""
    return [
        line
        for line in path.read_text().splitlines()
        if line and not line.startswith("#") and line != "allow missing"
    ]


def _key(match: Match) -> tuple[int, str, int, str]:
    golden, mine = match.golden.record, match.mine.record
    return golden.order, golden.name, mine.order, mine.name


def check_round_trip(found: Found, path: Path) -> list[str]:
    """The lines, once it is sure that they mean exactly these pairs."""
    write_mapping(path, found)
    options = MatchOptions(mapping=read_mapping(path))
    for golden, mine, matches in found:
        again = [
            each
            for each in match_runs(golden, mine, options)
            if isinstance(each, Match) and each.rule == "saved_mapping"
        ]
        wanted: dict[tuple[int, str, int, str], list[Match]] = {}
        for match in matches:
            wanted.setdefault(_key(match), []).append(match)
        assert sorted(map(_key, again)) == sorted(map(_key, matches))
        for match in again:
            assert any(
                same_effect(known.golden, match.golden.views)
                and same_effect(known.mine, match.mine.views)
                and match.confidence == pytest.approx(known.confidence, abs=0.3)
                for known in wanted[_key(match)]
            )
    return lines_of(path)


def compared(golden: Path, mine: Path) -> Found:
    """What is found between two dumps."""
    return [
        matched(pair.golden, pair.mine) for pair in pair_runs(find_scenario(golden, mine)).pairs
    ]


def matched(golden: Pass, mine: Pass) -> tuple[Pass, Pass, list[Match]]:
    """What is found between two runs."""
    found = match_runs(golden, mine, MatchOptions())
    return golden, mine, [each for each in found if isinstance(each, Match)]
