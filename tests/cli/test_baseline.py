"""``--baseline``: only what became worse than in an earlier result fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner, Result
from operator_dumps import LINEAR, OperatorDump

from ait_llm.cli.main import ait


def run(*words: object) -> Result:
    result = CliRunner().invoke(ait, ["llm", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refusal(*words: object) -> str:
    """What a command says that is refused."""
    result = CliRunner().invoke(ait, ["llm", *map(str, words)])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("ait: error: ")
    return result.stderr


def weights(path: Path, *wrong: int, factor: float = 3.0) -> Path:
    """A file of six tensors, some of them too large."""
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = {
        f"t{n}": np.arange(1, 65, dtype=np.float32) * (factor if n in wrong else 1)
        for n in range(6)
    }
    numpy.save_file(tensors, path)
    return path


@pytest.fixture
def last(tmp_path: Path) -> Path:
    """A jsonl report of a run in which two tensors are wrong."""
    words = ("-gp", weights(tmp_path / "golden.safetensors"), "--format", "jsonl")
    mine = weights(tmp_path / "mine.safetensors", 1, 2)
    assert run("compare", "-mp", mine, "-o", tmp_path / "first", *words).exit_code == 1
    (report,) = (tmp_path / "first").glob("*.jsonl")
    return report.rename(tmp_path / "last.jsonl")


def compared(folder: Path, last: Path, *more: object) -> Result:
    words = ("-gp", folder / "golden.safetensors", "-mp", folder / "mine.safetensors")
    return run("compare", *words, "-o", folder / "out", "--baseline", last, *more)


def test_failures_that_are_known_end_with_0_and_are_listed(tmp_path: Path, last: Path) -> None:
    ran = compared(tmp_path, last)
    assert ran.exit_code == 0
    head, *lines = ran.stdout.splitlines()
    assert head == "ait llm compare: PASS against the baseline, FAIL on its own"
    told = {line.split()[0]: line for line in lines}
    words = " ".join(ran.stdout.split())  # a long path breaks the line
    assert f"baseline {last}: 0 worse, 0 lost, 2 known, 0 mended, 0 new" in words
    assert "relative Euclidean distance 2 exceeds" in told["known"]


def test_what_became_worse_ends_with_1_and_what_is_mended_is_told(
    tmp_path: Path, last: Path
) -> None:
    weights(tmp_path / "mine.safetensors", 2, 4)
    ran = compared(tmp_path, last, "--json", "--format", "markdown")
    assert ran.exit_code == 1
    found = json.loads(ran.stdout)
    assert (found["verdict"], found["exit_code"]) == ("FAIL", 1)
    places = {
        kind: [each["where"] for each in found["baseline"][kind]]
        for kind in ("worse", "lost", "known", "mended")
    }
    assert [places[kind][0].split()[-1] for kind in ("worse", "known", "mended")] == [
        "t4",
        "t2",
        "t1",
    ]
    assert places["lost"] == []
    (page,) = (tmp_path / "out").glob("*.md")
    titles = [line for line in page.read_text().splitlines() if line.startswith("###")]
    assert titles == [
        "### Became worse",
        "### Known from the baseline",
        "### Mended since the baseline",
    ]


def test_a_known_failure_that_grows_is_worse(tmp_path: Path, last: Path) -> None:
    weights(tmp_path / "mine.safetensors", 1, 2, factor=30.0)
    ran = compared(tmp_path, last)
    assert ran.exit_code == 1
    assert "2 worse, 0 lost, 0 known" in " ".join(ran.stdout.split())  # a long path breaks it


def test_a_baseline_of_another_program_or_of_none_is_one_sentence(
    tmp_path: Path, last: Path
) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    for name in ("golden", "mine"):
        numpy.save_file({"other": np.ones(4, np.float32)}, tmp_path / f"{name}.safetensors")
    refused = refusal(
        *("compare", "-gp", tmp_path / "golden.safetensors", "-mp", tmp_path / "mine.safetensors"),
        *("-o", tmp_path / "out", "--baseline", last),
    )
    assert "is no baseline of this program" in refused.splitlines()[-1]
    (tmp_path / "text.jsonl").write_text("no report\n")
    words = ("compare", "-gp", tmp_path, "-mp", tmp_path, "--baseline", tmp_path / "text.jsonl")
    assert refusal(*words).count("\n") == 1


def api_dump(root: Path, last: float) -> Path:
    """Two calls; the first one's result ends with some value."""
    records, files = {}, {}
    for name, out in (("relu", [1.0, last]), ("silu", [1.0, 2.0])):
        call_name = f"Functional.{name}.0.forward"
        read, made = f"{call_name}.input.0.pt", f"{call_name}.output.0.pt"
        records[call_name] = call([tensor([1.0, 2.0], name=read)], [tensor(out, name=made)])
        files |= {read: np.asarray([1.0, 2.0], np.float32), made: np.asarray(out, np.float32)}
    write_dump(root, records, task="tensor", tensors=files)
    return root


def test_calls_of_an_api_level_dump_are_held_against_a_baseline(tmp_path: Path) -> None:
    golden, mine = api_dump(tmp_path / "golden", 2.0), api_dump(tmp_path / "mine", 5.0)
    words = ("compare", "-gp", golden, "-mp", mine, "-o", tmp_path / "out")
    assert run(*words, "--format", "jsonl").exit_code == 1
    (last,) = (tmp_path / "out").glob("*.jsonl")
    ran = run(*words, "--baseline", last, "--json")
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["baseline"]["counts"]["known"] == 1
    api_dump(tmp_path / "mine", 500.0)
    assert run(*words, "--baseline", last).exit_code == 1


def test_operators_are_held_against_an_earlier_json_report(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.linspace(1, 2, 64).reshape(4, 16).half()
    right = (x.double() @ x.double().T).half()

    def dump(name: str, first: float, second: float) -> Path:
        made = OperatorDump(tmp_path / name / "ait_dump")
        made.add("0_LinearOperation", [x, x], [right], LINEAR)
        made.add("1_ElewiseOperation", [x, x], [x + x + first], {"elewiseType": 8})
        made.add("2_ElewiseOperation", [x, x], [x + x + second], {"elewiseType": 8})
        return Path(made.root)

    out = tmp_path / "out"
    words = ("opcheck", "-o", out, "--format", "json", "-i")
    assert run(*words, dump("a", 1.0, 0.0)).exit_code == 1
    (last,) = out.glob("*.json")
    known = run(*words, dump("b", 1.0, 0.0), "--baseline", last)
    assert known.exit_code == 0
    assert known.stdout.startswith("ait llm opcheck: PASS against the baseline, on its own FAIL: ")
    assert "1 known" in known.stdout
    worse = run(*words, dump("c", 0.0, 1.0), "--baseline", last, "--json")
    assert worse.exit_code == 1
    counts = json.loads(worse.stdout)["baseline"]["counts"]
    assert (counts["worse"], counts["mended"]) == (1, 1)
    more = (tmp_path / "a", "--standard", "classic", "--baseline", last)
    assert "was made with another standard" in refusal(*words, *more)
