"""Results for a URL: whole or not at all, and kept here when they cannot be sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from compare_dumps import AtbPair
from graph_dumps import GraphDump
from object_store import Store
from odd_store import OddFileSystem

from ait_llm.cli.main import ait
from ait_llm.errors import UsageError
from ait_llm.storage import StorageError, output_folder


def run(*words: str) -> Result:
    result = CliRunner().invoke(ait, ["llm", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def pair(tmp_path: Path) -> AtbPair:
    made = AtbPair(tmp_path / "data")
    values = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    made.add("0_ElewiseOperation", values, values + np.float32(0.5))
    return made


def _kept(text: str) -> Path:
    found = re.search(r"\S*ait-results-\w+", text)
    assert found is not None, text
    return Path(found[0])


def test_reports_are_sent_and_named_by_their_url(store: Store, pair: AtbPair) -> None:
    ran = run(
        *("compare", "-gp", str(pair.golden), "-mp", str(pair.mine)),
        *("-o", f"{store.url}/report", "--format", "csv", "html"),
    )
    assert ran.exit_code == 1
    assert f"{store.url}/report/ait_cmp_report_" in ran.output
    assert "ait-results" not in ran.output
    names = store.names("report")
    assert sorted(name.partition(".")[2] for name in names if "_report_" in name) == ["csv", "html"]
    [table] = [name for name in names if name.endswith(".csv") and "_report_" in name]
    assert b"outtensor0" in store.read(f"report/{table}")


def test_trees_are_sent_as_they_are(memory: Store, pair: AtbPair) -> None:
    ran = run("convert", str(pair.mine), "-o", f"{memory.url}/plain", "--to", "npy")
    assert ran.exit_code == 0
    assert memory.names("plain") == ["tensors/0_4242/0/0_ElewiseOperation/after/outtensor0.npy"]


def test_files_that_are_there_are_replaced_only_when_told(memory: Store, pair: AtbPair) -> None:
    words = ("convert", str(pair.mine), "-o", f"{memory.url}/plain", "--to", "npy")
    assert run(*words).exit_code == 0
    again = run(*words)
    assert again.exit_code == 2
    assert "outtensor0.npy already; nothing was sent" in again.output
    kept = _kept(again.output)
    assert list(kept.rglob("*.npy"))
    assert run(*words, "--overwrite").exit_code == 0


def test_what_could_not_be_sent_is_named_and_kept(odd: Store, pair: AtbPair) -> None:
    folder = output_folder(f"{odd.url}/out")
    for name in ("a.csv", "b.csv"):
        (folder.folder / name).write_text(name)
    OddFileSystem.written = {"b.csv": PermissionError("read only")}
    with pytest.raises(StorageError) as caught:
        folder.send()
    text = str(caught.value)
    assert text.startswith(f"{odd.url}/out: b.csv could not be sent (access is refused: read only)")
    assert (_kept(text) / "b.csv").read_text() == "b.csv"
    assert odd.names("out") == ["a.csv"]
    folder.discard()


def test_a_command_whose_report_cannot_be_sent_exits_with_2(odd: Store, pair: AtbPair) -> None:
    class Refusing(dict[str, Exception]):
        def get(self, name: str, default: object = None) -> PermissionError:  # type: ignore[override]  # any name
            return PermissionError("read only")

    OddFileSystem.written = Refusing()
    ran = run(
        *("compare", "-gp", str(pair.golden), "-mp", str(pair.mine), "-o", f"{odd.url}/out"),
    )
    assert ran.exit_code == 2
    assert "could not be sent (access is refused: read only)" in ran.output
    assert list(_kept(ran.output.splitlines()[-1]).glob("*.csv"))


def test_a_command_that_fails_sends_nothing(memory: Store, tmp_path: Path) -> None:
    ran = run(
        *("compare", "-gp", str(tmp_path), "-mp", str(tmp_path / "no"), "-o", f"{memory.url}/out")
    )
    assert ran.exit_code == 2
    assert "ait-results" not in ran.output  # nothing was written, so nothing is kept
    assert memory.names() == []


def test_a_bucket_that_does_not_exist_is_told_before_the_work(s3: Store, pair: AtbPair) -> None:
    ran = run("convert", str(pair.mine), "-o", "s3://nowhere/out", "--to", "npy")
    assert ran.exit_code == 2
    assert ran.output.startswith("ait: error: s3://nowhere/out: its bucket does not exist")


@pytest.mark.parametrize("option", ["--save-mapping", "--layout"])
def test_options_of_local_files_say_so(memory: Store, pair: AtbPair, option: str) -> None:
    words = ("compare", "-gp", str(pair.golden), "-mp", str(pair.mine), option)
    ran = run(*words, f"{memory.url}/x.json")
    assert ran.exit_code == 2
    if option == "--save-mapping":
        assert f"--save-mapping {memory.url}/x.json: needs a local path, not a URL" in ran.output
    else:
        assert f"{memory.url}/x.json: no such file or folder" in ran.output


def test_existing_names_are_refused_before_anything_is_sent(memory: Store) -> None:
    memory.write("out/a.csv", b"old")
    folder = output_folder(f"{memory.url}/out")
    for name in ("a.csv", "b.csv"):
        (folder.folder / name).write_text("new")
    with pytest.raises(UsageError, match=r"holds a\.csv already"):
        folder.send()
    assert memory.read("out/a.csv") == b"old"
    assert memory.names("out") == ["a.csv"]
    assert folder.send(replace=True) == 2
    assert memory.read("out/a.csv") == b"new"
    assert not folder.folder.exists()


def test_results_in_json_name_the_url(memory: Store, tmp_path: Path) -> None:
    dump = GraphDump(tmp_path / "ait_dump", scale=(1.0, float("inf"))).write()
    for words, key in (
        (("compare", "-gp", str(dump), "-mp", str(dump)), "reports"),
        (("opcheck", "-i", str(dump), "--format", "csv"), "reports"),
        (("errcheck", "--dump", str(dump)), "files"),
    ):
        url = f"{memory.url}/{words[0]}"
        ran = run(*words, "-o", url, "--json")
        assert "ait-results" not in ran.output
        found = json.loads(ran.stdout.splitlines()[-1])[key]
        assert found
        assert all(path.startswith(f"{url}/") for path in found)
        assert sorted(path.removeprefix(f"{url}/") for path in found) == memory.names(words[0])
