"""An FX dump from which nodes or files were left out gives fewer pairs, and no wrong one.

Both recorded dumps are of one healthy run, so that every right pair holds equal numbers.
"""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ge_faults import FaultyDump, swapped_rows

from ait_llm.compare import compare
from ait_llm.core.comparison import Verdict
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import apply

Keep = Callable[[str, str, str], bool]

_FILE = re.compile(r"(?P<node>.+?)-(?P<target>.+?)\.(?P<side>INPUT|OUTPUT)\.")
_FAR = 0.02  # relative distance; the engine computed in float16


def _copy(recorded: Path, folder: Path, keep: Keep) -> Path:
    """A copy of an FX dump with the files that are kept.

    ``keep`` gets the node with its execution, its target, and the name of the file.
    """
    for parent, name, node, target in _files(recorded):
        if keep(f"{parent}/{node}", target, name):
            copy = folder / parent
            copy.mkdir(parents=True, exist_ok=True)
            os.link(recorded / parent / name, copy / name)
    return folder


@functools.cache
def _files(recorded: Path) -> list[tuple[Path, str, str, str]]:
    """Folder, name, node and target of each file of a dump that nobody writes into."""
    listed = []
    for file in sorted(recorded.rglob("*.npy")):
        found = _FILE.match(file.name)
        assert found is not None
        listed.append(
            (file.parent.relative_to(recorded), file.name, found["node"], found["target"])
        )
    return listed


def _targets_of_prefill(recorded: Path) -> list[str]:
    found = (_FILE.match(file.name) for file in recorded.rglob("graph_1/*/*.npy"))
    return sorted({each["target"] for each in found if each is not None})


def _pairs(golden: Path, mine: Path) -> list[Match]:
    """All pairs of all executions."""
    pairing = pair_runs(find_scenario(golden, mine))
    assert not [each for each in pairing.problems if each.side == "both"]  # "of one model?"
    runs = [(pair.golden, pair.mine) for pair in pairing.pairs]
    items = [each for a, b in runs for each in match_runs(a, b, MatchOptions())]
    return [each for each in items if isinstance(each, Match)]


def _wrong(pairs: list[Match]) -> list[str]:
    """Pairs whose numbers differ."""
    wrong = []
    for each in pairs:
        arrays = [
            np.asarray(apply(side.tensor.nd(), side.views), np.float64).reshape(-1)
            for side in (each.golden, each.mine)
        ]
        finite = np.isfinite(arrays[0]) & np.isfinite(arrays[1])
        first, second = (array[finite] for array in arrays)
        if np.linalg.norm(first - second) > _FAR * np.linalg.norm(first):
            wrong.append(f"{each.golden.record.title} and {each.mine.record.title}: {each.reason}")
    return wrong


def _random_nodes(seed: int) -> Keep:
    share, choice = random.Random(seed).choice([0.05, 0.2, 0.5, 0.8]), {}

    def keep(node: str, target: str, name: str) -> bool:
        return choice.setdefault(node, random.Random(f"{seed} {node}").random() < share)

    return keep


def _random_targets(seed: int) -> Keep:
    return lambda node, target, name: random.Random(f"{seed} {target}").random() < 0.5


def _random_files(seed: int) -> Keep:
    return lambda node, target, name: random.Random(f"{seed} {name}").random() < 0.5


def _of_prefill(target: str) -> Keep:
    return lambda node, other, name: other == target and "/graph_1/" in node


def _every(count: int) -> Keep:
    seen: dict[str, int] = {}

    def keep(node: str, target: str, name: str) -> bool:
        return seen.setdefault(node, len(seen)) % count == 0

    return keep


FILTERS: dict[str, Keep] = {
    "without views of weights": lambda node, target, name: target != "aten.t.default",
    "results only": lambda node, target, name: ".OUTPUT." in name,
    "arguments only": lambda node, target, name: ".INPUT." in name,
    **{f"every node of {count}": _every(count) for count in (3, 7)},
    **{f"random nodes {seed}": _random_nodes(seed) for seed in range(4)},
    **{f"random targets {seed}": _random_targets(seed) for seed in range(3)},
    **{f"random files {seed}": _random_files(seed) for seed in range(2)},
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_was_left_out_makes_no_wrong_pair(
    recorded_decoder: dict[str, Path], tmp_path: Path, name: str
) -> None:
    golden = _copy(recorded_decoder["fx"], tmp_path / "fx", FILTERS[name])
    pairs = _pairs(golden, recorded_decoder["fused"])
    assert len(pairs) > 50
    assert _wrong(pairs) == []


def test_nodes_of_one_operator_only(recorded_decoder: dict[str, Path], tmp_path: Path) -> None:
    for target in _targets_of_prefill(recorded_decoder["fx"]):
        golden = _copy(recorded_decoder["fx"], tmp_path / target, _of_prefill(target))
        assert _wrong(_pairs(golden, recorded_decoder["fused"])) == [], target


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_the_filtered_dump_may_be_mine_and_fusion_off(
    recorded_decoder: dict[str, Path], tmp_path: Path, seed: int
) -> None:
    mine = _copy(recorded_decoder["fx"], tmp_path / "fx", _random_nodes(seed))
    assert _wrong(_pairs(recorded_decoder["unfused"], mine)) == []


@pytest.mark.parametrize("target", ["aten.mm.default", "aten.addmm.default"])
def test_a_weight_is_turned_as_the_graph_says(
    recorded_decoder: dict[str, Path], tmp_path: Path, target: str
) -> None:
    golden = _copy(recorded_decoder["fx"], tmp_path / "fx", lambda _, other, __: other == target)
    pairs = _pairs(golden, recorded_decoder["fused"])
    weights = [each for each in pairs if each.relation == "graph input"]
    read = {each.mine.record.path for each in weights if each.mine.record.op_type == "Transpose"}
    assert len(read) == {"aten.mm.default": 45, "aten.addmm.default": 10}[target]
    assert all(each.confidence == 1 for each in weights)  # its bytes are those of the other side


def test_healthy_dumps_have_no_failure(recorded_decoder: dict[str, Path], tmp_path: Path) -> None:
    kept = ("aten.mm.default", "aten.addmm.default", "aten.add.Tensor")
    golden = _copy(recorded_decoder["fx"], tmp_path / "fx", lambda _, target, __: target in kept)
    report = compare(golden, recorded_decoder["fused"])
    assert report.counts[Verdict.FAIL] == report.counts[Verdict.ERROR] == 0
    assert report.counts[Verdict.PASS] > 400
    assert not report.problems
    assert not report.origins


def test_a_wrong_transpose_is_found_by_the_product_that_reads_it(
    recorded_decoder: dict[str, Path], tmp_path: Path
) -> None:
    golden = _copy(
        recorded_decoder["fx"], tmp_path / "fx", lambda _, target, __: ".mm." in f".{target}"
    )
    mine = tmp_path / "ge"
    shutil.copytree(recorded_decoder["fused"], mine)
    FaultyDump(mine).inject(0, "Transpose_6", swapped_rows)
    report = compare(golden, mine)
    assert {item.record.title for item in report.with_verdict(Verdict.FAIL)} >= {
        "Transpose_6 outtensor0",
        "MatMul outtensor0",
    }
    assert [origin.op for origin in report.origins] == ["Transpose_6"]
