"""Units and whole commands on a real cluster of several nodes: the same as in threads."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

from api_dumps import call, tensor, write_dump
from compare_dumps import AtbPair
from odd_dumps import half, write_operation
from operator_dumps import LINEAR, OperatorDump
from ray_cluster import NodesHere, alive, nodes_here, wait_until

from ait_llm.compare import compare
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.convert import convert_files
from ait_llm.core import TensorDesc, Verdict
from ait_llm.core.comparison import Report
from ait_llm.engine import Engine, Lost, attempt, open_engine
from ait_llm.errcheck.check import check_dump
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats import dtype_of, write_tensor
from ait_llm.metrics import CustomMetric
from ait_llm.opcheck.pipeline import opcheck
from ait_llm.report import write_reports

RANKS = 3
PER_RANK = 150  # more than one unit of work for each rank


@pytest.fixture(scope="module")
def cluster() -> Iterator[NodesHere]:
    with nodes_here() as made:
        yield made


@pytest.fixture
def engine(cluster: NodesHere) -> Iterator[Engine]:
    with open_engine("ray", cluster.address) as opened:
        assert opened is not None
        yield opened


# Units


def test_each_unit_comes_back_with_its_place(engine: Engine) -> None:
    def double(number: int) -> int:
        return 2 * number

    assert dict(engine.run(double, range(20))) == {number: 2 * number for number in range(20)}
    assert engine.slots == 2


def test_units_are_computed_by_several_processes_and_none_is_this(engine: Engine) -> None:
    def where(_: int) -> tuple[int, str]:
        import ray

        return os.getpid(), ray.get_runtime_context().get_node_id()

    found = [each for _, each in engine.run(where, range(12)) if not isinstance(each, Lost)]
    assert os.getpid() not in {pid for pid, _ in found}
    assert len({node for _, node in found}) == 2


def test_an_error_for_the_user_comes_out_as_it_was_raised(engine: Engine) -> None:
    def refuse(_: int) -> None:
        raise FormatError("a/b.bin", "is cut off", "Dump again")

    with pytest.raises(FormatError) as caught:
        list(engine.run(refuse, [1]))
    assert type(caught.value) is FormatError
    assert str(caught.value) == "a/b.bin: is cut off. Dump again"
    assert (caught.value.path, caught.value.advice) == (Path("a/b.bin"), "Dump again")


def test_a_bug_keeps_the_traceback_of_the_worker(engine: Engine) -> None:
    def broken(_: int) -> None:
        {}["nothing"]

    with pytest.raises(KeyError, match="nothing") as caught:
        list(engine.run(broken, [1]))
    assert "in broken" in str(caught.value.__cause__)


def test_a_worker_that_is_killed_is_replaced(engine: Engine, tmp_path: Path) -> None:
    def die_once(number: int) -> tuple[int, int]:
        marker = tmp_path / str(number)
        if number % 3 == 0 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number, attempt()

    found = dict(engine.run(die_once, range(7)))
    assert found == {number: (number, 2 if number % 3 == 0 else 1) for number in range(7)}


def test_a_unit_that_kills_every_worker_is_lost_with_its_reason(engine: Engine) -> None:
    def die(number: int) -> int:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    found = dict(engine.run(die, range(3)))
    lost = found.pop(1)
    assert found == {0: 0, 2: 2}
    assert isinstance(lost, Lost)
    assert lost.reason.startswith("its worker process died in each of 4 attempts, at last at ")


def test_a_stop_cancels_what_is_under_way(engine: Engine, tmp_path: Path) -> None:
    def wait_for_ever(number: int) -> int:
        if number:
            (tmp_path / "started").touch()
            while True:
                time.sleep(0.05)
        return number

    stop = threading.Event()
    results = engine.run(wait_for_ever, range(50), stop=stop)
    assert next(results) == (0, 0)
    threading.Thread(target=lambda: (wait_until((tmp_path / "started").exists), stop.set())).start()
    assert list(results) == []
    # its processors are free again
    assert len(list(engine.run(abs, range(4)))) == 4


def test_a_path_that_no_node_sees_is_an_error(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file or directory on any of 2 nodes"):
        list(engine.run(abs, [1], roots=[str(tmp_path / "nowhere")]))


def test_dumps_that_only_another_node_sees_are_told_with_it(
    lonely: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = AtbPair(tmp_path / "data")
    pair.add("0_LinearOperation", np.ones(3, np.float16), np.ones(3, np.float16))
    sides = [on_own_node(tmp_path / "data") / name / "ait_dump" for name in ("golden", "mine")]
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match=r"is not on this machine but on .*; start the command"):
        compare(*sides, engine=lonely)


def test_urls_are_seen_everywhere(engine: Engine) -> None:
    assert list(engine.run(abs, [-1], roots=["s3://bucket/dump"])) == [(0, 1)]


def test_what_is_in_memory_cannot_be_read_elsewhere(engine: Engine) -> None:
    with pytest.raises(UsageError, match="is in the memory of this process"):
        list(engine.run(abs, [1], roots=["memory://dump"]))


# Whole commands


def text_of(report: Report, folder: Path) -> str:
    """A report as csv and jsonl, without its times and the name of its folder."""
    folder.mkdir()
    files = write_reports(report, ["csv", "jsonl"], folder, "1")
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert len(lines) > 2
    return re.sub(r'"(started|finished)":"[^"]*"', "", "\n".join(lines))


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Ranks of which one has a NaN, one a missing tensor and one a damaged file."""
    root = tmp_path_factory.mktemp("atb")
    values = np.linspace(-1, 1, 24, dtype=np.float16).reshape(4, 6)
    for side in ("golden", "mine"):
        for rank in range(RANKS):
            process = root / side / "ait_dump" / "tensors" / f"{rank}_{100 + rank}" / "0"
            for number in range(PER_RANK):
                array = values * np.float16(1 + number / 100)
                if side == "mine" and (rank, number) == (1, 40):
                    array[2, 3] = np.nan
                if side == "mine" and (rank, number) == (0, 7):
                    continue
                folder = process / f"{number}_LinearOperation" / "after"
                folder.mkdir(parents=True)
                file = folder / "outtensor0.bin"
                write_tensor(file, array, TensorDesc(dtype_of(array), array.shape), {})
                if side == "golden" and (rank, number) == (2, 149):
                    file.write_bytes(file.read_bytes()[:-5])
    return root / "golden" / "ait_dump", root / "mine" / "ait_dump"


def test_compare_gives_the_same_report(
    engine: Engine, dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    progress = []
    here = compare(*dumps)
    there = compare(*dumps, engine=engine, on_progress=progress.append)
    assert {v: here.counts[v] for v in Verdict} == {
        Verdict.PASS: RANKS * PER_RANK - 3,
        Verdict.FAIL: 1,
        Verdict.SKIPPED: 1,
        Verdict.ERROR: 1,
    }
    assert text_of(there, tmp_path / "there") == text_of(here, tmp_path / "here")
    assert there.origins == here.origins
    assert len(progress) >= RANKS
    assert progress[-1].pairs == progress[-1].total_pairs


def killing_metric(marker: Path, victim: str) -> CustomMetric:
    """A metric that kills its worker, or the node of that, the first time it sees a NaN."""

    def kill(golden: np.ndarray[Any, Any], mine: np.ndarray[Any, Any]) -> tuple[float, str]:
        if np.isnan(mine).any() and not marker.exists():
            marker.touch()
            if victim == "node":
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0, ""

    return CustomMetric("kill", "test", kill, True)


def test_a_worker_killed_in_the_middle_changes_nothing_in_the_report(
    engine: Engine, dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    metric = killing_metric(tmp_path / "killed", "worker")
    there = compare(*dumps, engine=engine, custom=[metric])
    assert (tmp_path / "killed").exists()
    here = compare(*dumps, custom=[metric])
    assert text_of(there, tmp_path / "there") == text_of(here, tmp_path / "here")


def test_an_interrupted_comparison_is_resumed_elsewhere(
    engine: Engine, dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    whole = compare(*dumps)
    [earlier] = write_reports(whole, ["jsonl"], tmp_path, "1")
    progress = []
    again = compare(*dumps, engine=engine, resume=earlier, on_progress=progress.append)
    assert progress[-1].resumed == whole.compared
    assert text_of(again, tmp_path / "again") == text_of(whole, tmp_path / "whole")


def test_ranks_of_api_dumps_give_the_same_tables(engine: Engine, tmp_path: Path) -> None:
    values = np.linspace(-2, 2, 64, dtype=np.float32).reshape(8, 8)
    sides = []
    for side, factor in (("golden", 1), ("mine", -1)):
        root = tmp_path / side
        for rank in range(3):
            scaled = values * (factor if rank == 1 else 1)
            records = {
                f"Tensor.add.{n}.forward": call(
                    [tensor(scaled, name=f"Tensor.add.{n}.forward.input.0.pt")],
                    [tensor(scaled, name=f"Tensor.add.{n}.forward.output.0.pt")],
                )
                for n in range(3)
            }
            files = {
                f"Tensor.add.{n}.forward.{way}.0.pt": scaled
                for n in range(3)
                for way in ("input", "output")
            }
            write_dump(root, records, rank=rank, task="tensor", tensors=files)
        sides.append(root)
    outcomes = {}
    rows: dict[str, list[str]] = {"here": [], "there": []}
    for name, where in (("here", None), ("there", engine)):
        folder = tmp_path / name
        outcomes[name] = compare_api_dumps(
            sides[1],
            sides[0],
            folder,
            "1",
            ApiOptions(),
            formats=["csv"],
            on_row=lambda row, name=name: rows[name].append(f"{row.item.name} {row.result}"),
            engine=where,
        )
    here, there = outcomes["here"], outcomes["there"]
    assert here.exit_code() == there.exit_code() == 1
    assert rows["there"] == rows["here"]
    assert len(rows["here"]) == 18
    for mine, other in zip(here.pairs, there.pairs, strict=True):
        assert (mine.suffix, mine.counts, mine.advice) == (other.suffix, other.counts, other.advice)
        assert [path.name for path in mine.files] == [path.name for path in other.files]
        for path, copy in zip(mine.files, other.files, strict=True):
            assert path.read_bytes() == copy.read_bytes()
            assert path.stat().st_mode == copy.stat().st_mode


def operators(tmp_path: Path) -> Path:
    import torch

    x = torch.linspace(1, 2, 64).reshape(4, 16).half()
    right = (x.double() @ x.double().T).half()
    for rank in range(2):
        made = OperatorDump(tmp_path / "ait_dump", process=f"{rank}_{50 + rank}")
        for number in range(12):
            made.add(f"{number}_LinearOperation", [x, x], [right * (1 + (number == 5))], LINEAR)
        made.add("12_UnheardOperation", [x], [x])
    return tmp_path / "ait_dump"


def test_opcheck_finds_the_same_and_writes_the_same_repros(engine: Engine, tmp_path: Path) -> None:
    dump = operators(tmp_path)
    failed: dict[str, list[str]] = {"here": [], "there": []}
    reports = {
        name: opcheck(
            dump,
            engine=where,
            journal=tmp_path / f"{name}.jsonl",
            on_failure=lambda target, inputs, judged, name=name: failed[name].append(
                f"{target.pid} {target.op_id} {len(inputs)} {judged.checked.reason}"
            ),
        )
        for name, where in (("here", None), ("there", engine))
    }
    assert reports["there"].items == reports["here"].items
    assert sorted(failed["there"]) == sorted(failed["here"])
    assert len(failed["here"]) == 2
    verdicts = [item.verdict for item in reports["there"].items]
    assert verdicts.count(Verdict.PASS) == 22
    journals = [sorted((tmp_path / f"{name}.jsonl").read_text().splitlines()) for name in reports]
    assert journals[0] == journals[1]


def test_errcheck_tells_the_same_story(engine: Engine, tmp_path: Path) -> None:
    odd = half(3, 4, at_1_2=np.nan)
    for pid in (7, 8):
        for step in range(2):
            folder = {"step": step, "process": f"{pid - 7}_{pid}"}
            left = odd if pid == 8 and step == 1 else half(3, 4)
            write_operation(tmp_path, "0_RmsNormOperation", [half(3, 4)], [left], **folder)
            write_operation(tmp_path, "1_LinearOperation", [left, half(4, 4)], [left], **folder)
    here, there = check_dump(tmp_path), check_dump(tmp_path, engine=engine)
    assert there == here
    [finding] = there.harmful
    assert (finding.place.name, finding.place.pid, finding.steps) == ("RmsNormOperation_0", 8, (1,))


def test_convert_writes_the_same_files(engine: Engine, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for number in range(30):
        folder = source / str(number % 3)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{number}.npy", np.full((3, number + 1), number, np.float32))
    (source / "0" / "broken.npy").write_bytes(b"no header")
    (source / "read.me").write_text("no tensor")
    here = convert_files(source, tmp_path / "here", "bin")
    there = convert_files(source, tmp_path / "there", "bin", engine=engine)
    names = [path.relative_to(tmp_path / "here") for path in here.files]
    assert [path.relative_to(tmp_path / "there") for path in there.files] == names
    assert (there.tensors, there.others, there.problems) == (30, 1, here.problems)
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_convert_again_is_refused_for_what_is_there(engine: Engine, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    convert_files(tmp_path / "a.npy", tmp_path / "out", "bin", engine=engine)
    again = convert_files(tmp_path / "a.npy", tmp_path / "out", "bin", engine=engine)
    assert [text for text in again.problems if "is there already" in text]


# Nodes


def on_own_node(folder: Path) -> Path:
    """A path that leads to ``folder`` for processes that work in it, and nowhere for others."""
    return Path("/proc/self/cwd") / folder.name


@pytest.fixture
def lonely(
    cluster: NodesHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Engine]]:
    """A third node; what is in the folder of the test, only it and this process see."""
    node = cluster.add_node(tmp_path)
    wait_until(lambda: alive() == 3)
    monkeypatch.chdir(tmp_path)
    try:
        with open_engine("ray", cluster.address) as engine:
            assert engine is not None
            yield engine
    finally:
        cluster.remove(node)


def test_units_run_where_their_data_is_and_are_skipped_when_that_node_is_lost(
    lonely: Engine, tmp_path: Path
) -> None:
    pair = AtbPair(tmp_path / "data")
    values = np.linspace(-1, 1, 24, dtype=np.float16)
    for number in range(400):
        bad = np.where(np.arange(24) == 3, np.float16(np.nan), values)
        pair.add(f"{number}_LinearOperation", values, bad if number == 200 else values)
    sides = [on_own_node(tmp_path / "data") / name / "ait_dump" for name in ("golden", "mine")]
    report = compare(*sides, engine=lonely)
    assert report.counts[Verdict.PASS] == 399
    metric = killing_metric(tmp_path / "killed", "node")
    report = compare(*sides, engine=lonely, custom=[metric])
    skipped = list(report.with_verdict(Verdict.SKIPPED))
    assert report.counts[Verdict.PASS] + len(skipped) == 400
    assert 0 < len(skipped) < 400
    [reason] = {item.reason for item in skipped}
    assert reason.startswith("node ")
    assert f"was lost, and no other node with processors sees {sides[0]}" in reason
    assert report.exit_code() == 3
    assert not report.partial


def test_what_a_lost_node_had_is_done_elsewhere(
    lonely: Engine, dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    metric = killing_metric(tmp_path / "killed", "node")
    (tmp_path / "killed").touch()
    here = compare(*dumps, custom=[metric])
    (tmp_path / "killed").unlink()

    def kill_third(number: int) -> int:
        marker = tmp_path / "killed"
        if not marker.exists() and Path("/proc/self/cwd").resolve() == tmp_path:
            marker.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert dict(lonely.run(kill_third, range(9))) == {number: number for number in range(9)}
    there = compare(*dumps, custom=[metric], engine=lonely)
    assert text_of(there, tmp_path / "there") == text_of(here, tmp_path / "here")


def test_another_version_on_a_node_is_told(
    cluster: NodesHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ait_llm.engine.ray_engine.__version__", "99.0")
    with open_engine("ray", cluster.address) as engine:
        assert engine is not None
        with pytest.raises(UsageError, match=r"has ait-llm .*, this is 99\.0; install the same"):
            list(engine.run(abs, [1]))


def test_the_command_works_on_a_running_cluster_and_is_quiet(
    cluster: NodesHere, dumps: tuple[Path, Path], tmp_path: Path
) -> None:
    import subprocess

    words = ["-gp", str(dumps[0]), "-mp", str(dumps[1]), "-o", str(tmp_path), "--json"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ait_llm", "llm", "compare", *words),
            *("--engine", "ray", "--address", cluster.address),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    said = done.stderr.splitlines()
    # a busy machine takes long enough for progress to be told
    first, verdict = [each for each in said if not each.startswith("compared ")][:2]
    assert first.startswith("comparing ")
    assert verdict == "ait llm compare: FAIL"
    assert "raylet" not in done.stderr
