"""Which operator of a captured run of ATB matters, against golden operators."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from doc_pages import Shell, own_environment

from ait_llm.cli.main import ait
from tests.support.json_outputs import check

pytestmark = pytest.mark.native


def captured(folder: Path, *words: str) -> Path:
    program = shlex.join(["python", "-m", "ait_llm.hostatb.demo.llama", "--tokens", "2", *words])
    types = "--type tensor layer model -er 0,0"
    Shell(folder, own_environment()).run(f"ait llm dump --exec '{program}' {types} -o dump")
    return folder / "dump"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # one layer computes wrongly in both of its graphs, another one far less
    faults = ("swapped_heads:layer=1", "scale_1pct@Elewise:layer=0")
    return captured(tmp_path_factory.mktemp("faulty"), *[w for f in faults for w in ("--fault", f)])


def run(dump: Path, folder: Path, *words: str) -> tuple[int, str]:
    command = ["llm", "transplant", "-mp", str(dump), "-o", str(folder), *words]
    done = CliRunner().invoke(ait, command)
    return done.exit_code, done.stdout


def test_the_operators_that_change_the_answer_are_named(faulty: Path, tmp_path: Path) -> None:
    code, text = run(faulty, tmp_path, "--json")
    found = json.loads(text.splitlines()[-1])
    check("transplant", found)
    assert code == 1
    needed = {each["op"].partition("_")[0] for each in found["suspects"] if each["needed"]}
    assert needed >= {"SelfAttentionOperation", "PagedAttentionOperation"}
    assert found["suspects"][0]["op"].startswith(("SelfAttention", "PagedAttention"))
    assert found["after"]["error"] < 0.05 * found["before"]["error"]
    (folder,) = tmp_path.iterdir()
    assert [each.name for each in folder.iterdir()] == ["transplant.json"]


def test_a_healthy_run_is_golden(tmp_path: Path) -> None:
    dump = captured(tmp_path)
    code, text = run(dump, tmp_path / "out")
    assert code == 0
    assert "PASS: the answer is golden's within rounding" in text


def test_all_that_is_computed_is_kept_if_asked_for(faulty: Path, tmp_path: Path) -> None:
    run(faulty, tmp_path, "--keep")
    (folder,) = tmp_path.iterdir()
    assert {"golden", "local", "errors", "transplant.json"} <= {e.name for e in folder.iterdir()}


def test_a_trusted_side_beside_golden_operators_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        ait, ["llm", "transplant", "-mp", "x", "-gp", "y", "-o", str(tmp_path)]
    )
    assert done.exit_code == 2
    assert "--my-path is compared with golden operators" in done.output


def test_a_dump_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    code, _ = run(tmp_path / "none", tmp_path / "out")
    assert code == 2
    assert not (tmp_path / "out").exists()
