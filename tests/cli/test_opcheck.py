"""``ait llm opcheck``: options, reports, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from operator_dumps import LINEAR, OperatorDump, table_row

from ait_llm.cli.main import ait

X = torch.linspace(1, 2, 64).reshape(4, 16).half()
RIGHT = (X.double() @ X.double().T).half()


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(ait, ["llm", "opcheck", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def dump(tmp_path: Path) -> OperatorDump:
    made = OperatorDump(tmp_path / "ait_dump")
    made.add("0_Layer/0_LinearOperation", [X, X], [RIGHT], LINEAR)
    made.add("0_Layer/1_ElewiseOperation", [X, X], [X + X + 1], {"elewiseType": 8})
    made.add("1_LinearOperation", [X, X], [RIGHT], LINEAR)
    return made


def test_a_failing_operator_is_named_and_the_exit_code_is_1(
    dump: OperatorDump, tmp_path: Path
) -> None:
    ran = run("-i", dump.root, "-o", tmp_path / "out", "--format", "csv")
    assert ran.exit_code == 1
    head = "ait llm opcheck: FAIL: 3 operators, outputs: 2 PASS, 1 FAIL (standard contract)"
    assert head in ran.output
    assert "FAIL    ElewiseOperation_0_1 outtensor0: 64 of 64 elements are beyond" in ran.output
    (report,) = (tmp_path / "out").iterdir()  # the journal of a finished check is gone
    assert report.name.startswith("opcheck_result_")
    assert report.suffix == ".csv"


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["-ids", "0_0,", "1"], ["0_0", "1"]),
        (["--operation-ids", "0"], ["0_0", "0_1"]),
        (["-opname", "LINEAR\uff0csoftmax"], ["0_0", "1"]),
        (["--operation-name", "elewise"], ["0_1"]),
        (["-ids", "0", "-opname", "linear"], ["0_0"]),
    ],
)
def test_filters_in_both_spellings(
    dump: OperatorDump, tmp_path: Path, words: list[str], ids: list[str]
) -> None:
    run("-i", dump.root, "-o", tmp_path / "out", "--format", "json", *words)
    (report,) = (tmp_path / "out").glob("*.json")
    assert [item["op_id"] for item in json.loads(report.read_text())["outputs"]] == ids


@pytest.mark.parametrize(
    "words", [["-metric", "abs", "kl"], ["--precision-metric", "abs,kl"], ["-metric", "kl abs"]]
)
def test_further_columns(dump: OperatorDump, tmp_path: Path, words: list[str]) -> None:
    words = [part for word in words for part in word.split(" ")]
    run("-i", dump.root, "-o", tmp_path / "out", "--format", "csv", *words)
    (report,) = (tmp_path / "out").iterdir()
    header = report.read_text().splitlines()[0]
    assert "abs_precision_result(%),max_abs_error,kl_divergence" in header
    assert "cosine_similarity" not in header


def test_the_manuals_call_with_a_table(dump: OperatorDump, tmp_path: Path) -> None:
    table = dump.table(table_row("LinearOperation_1", "{}", [X, X], [RIGHT]))
    ran = run("--input", dump.tensors, "--csv-path", table, "--output", tmp_path / "out")
    assert ran.exit_code == 0
    assert "PASS: 1 operator, outputs: 1 PASS" in ran.output


@pytest.mark.native
@pytest.mark.parametrize("word", ["-rerun", "--atb-rerun", "--rerun"])
def test_rerun_in_every_spelling(dump: OperatorDump, tmp_path: Path, word: str) -> None:
    words = ["-device", "0", "-ids", "0_1", "--format", "csv"]
    ran = run("-i", dump.root, "-o", tmp_path / "out", word, *words)
    assert ran.exit_code == 1
    assert "note    no independent rerun: there is no NPU here" in ran.output
    assert "the kernel" not in ran.output
    assert "memory" not in ran.output


def test_another_implementation_reruns(dump: OperatorDump, tmp_path: Path) -> None:
    module = tmp_path / "other.py"
    module.write_text("def run(operator, inputs, params):\n    return inputs[0] + inputs[1]\n")
    words = ["-ids", "0_1", "--format", "csv", "--rerun-with", f"{module}:run"]
    ran = run("-i", dump.root, "-o", tmp_path / "out", *words)
    assert ran.exit_code == 1
    assert "stale or overwritten memory" in ran.output
    assert "no independent rerun" not in ran.output
    words[-1] = f"{module}:walk"
    assert run("-i", dump.root, "-o", tmp_path / "out", *words).exit_code == 2


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"ATB_HOME_PATH": "/opt/ait_llm/lib/hostatb/cxx_abi_1"}, True),
        ({}, True),  # nothing else was there
        ({"ATB_HOME_PATH": "/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_1"}, False),
        ({"ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/ascend-toolkit/latest"}, False),
        (None, False),
    ],
)
def test_what_a_dump_of_hostatb_shows_is_said(
    dump: OperatorDump, tmp_path: Path, environment: dict[str, str] | None, said: bool
) -> None:
    dump.ledger()
    file = dump.root / "ledger" / f"{dump.process}.jsonl"
    header, rest = file.read_text().split("\n", 1)
    facts = json.loads(header)
    if environment is not None:
        facts["environment"] = environment
    file.write_text(json.dumps(facts) + "\n" + rest)
    ran = run("-i", dump.root, "-o", tmp_path / "out", "--format", "csv")
    assert ("whose kernels are the golden operators" in ran.output) is said


@pytest.mark.native
@pytest.mark.parametrize("words", [["-rerun"], ["-j", "1"], []])
def test_a_check_leaves_the_number_of_threads_as_it_was(
    dump: OperatorDump, tmp_path: Path, words: list[str]
) -> None:
    torch.set_num_threads(1)
    run("-i", dump.root, "-o", tmp_path / "out", "-ids", "0_1", "--format", "csv", *words)
    assert torch.get_num_threads() == 1


def test_what_counts_as_failed_can_be_chosen(dump: OperatorDump, tmp_path: Path) -> None:
    common: list[Any] = ["-i", dump.root, "-o", tmp_path / "out", "--format", "csv"]
    assert run(*common, "--fail-on", "never").exit_code == 0
    dump.add("2_SecretOperation", [X], [X], {})
    only = [*common, "-opname", "linear,secret"]
    assert run(*only).exit_code == 3
    assert run(*only, "--allow-skip").exit_code == 0
    assert run(*only, "--fail-on", "skipped").exit_code == 1


def test_json_is_the_only_thing_on_stdout(dump: OperatorDump, tmp_path: Path) -> None:
    ran = run("-i", dump.root, "-o", tmp_path / "out", "--format", "junit", "--json")
    data = json.loads(ran.stdout)
    assert (data["verdict"], data["exit_code"]) == ("FAIL", 1)
    assert data["counts"]["PASS"] == 2
    assert [Path(name).name.partition(".")[2] for name in data["reports"]] == ["junit.xml"]


def test_failures_are_reproduced_in_a_folder(dump: OperatorDump, tmp_path: Path) -> None:
    common: list[Any] = ["-i", dump.root, "-o", tmp_path / "out", "--format", "csv"]
    ran = run(*common, "--repro", tmp_path / "repro")
    names = sorted(path.name for path in (tmp_path / "repro").iterdir())
    stem = "ElewiseOperation_0_1_outtensor0_step0_0_4242"
    assert names == [f"{stem}.py", f"{stem}.safetensors"]
    assert f"repro   python {tmp_path / 'repro' / stem}.py" in ran.output


def test_golden_operators_of_ones_own(dump: OperatorDump, tmp_path: Path) -> None:
    dump.add("2_TripleOperation", [X], [3 * X], {})
    module = tmp_path / "my_golden.py"
    module.write_text(
        "from ait_llm.opcheck import Result, golden_op\n"
        "@golden_op('TripleOperation', infer_shape=lambda descs, params: (descs[0],))\n"
        "def triple(inputs, params, arithmetic):\n"
        "    x = arithmetic.widen(inputs[0])\n"
        "    return Result((arithmetic.round(3 * x, inputs[0].dtype),))\n"
    )
    from ait_llm.opcheck.golden import golden_ops

    words = ["-opname", "triple", "--format", "csv"]
    try:
        ran = run("-i", dump.root, "-o", tmp_path / "out", *words, "--golden", module)
    finally:
        golden_ops._entries.pop("TripleOperation", None)
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--standard", "contrakt"], "unknown precision standard 'contrakt'"),
        (["-metric", "cosine"], "unknown metric 'cosine'; known: abs, cos_sim, kl"),
        (["-ids", "a"], "operation id 'a' is not numbers"),
        (["-opname", "nothing"], "no operator to check"),
        (["--format", "pdf"], "unknown report format 'pdf'"),
        (["--golden", "no_such_module_at_all"], "--golden no_such_module_at_all cannot be loaded"),
        (["--golden", "missing.py"], "missing.py: no such file"),
        (["--resume", "missing.jsonl"], "missing.jsonl: no such file"),
        (["-c", "missing.csv"], "missing.csv"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    dump: OperatorDump, tmp_path: Path, words: list[str], message: str
) -> None:
    ran = run("-i", dump.root, "-o", tmp_path / "out", *words)
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.output


def test_a_folder_that_is_no_dump_is_refused(tmp_path: Path) -> None:
    ran = run("-i", tmp_path, "-o", tmp_path / "out")
    assert ran.exit_code == 2
    assert str(tmp_path) in ran.stderr


def test_an_interrupted_check_leaves_a_journal_that_resume_completes(
    dump: OperatorDump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common: list[Any] = ["-i", dump.root, "-o", tmp_path / "out", "--format", "csv"]
    stopped = threading.Event()
    stopped.set()
    with monkeypatch.context() as patch:
        patch.setattr("ait_llm.cli.opcheck.stop_on_signals", lambda: nullcontext(stopped))
        ran = run(*common)
    assert ran.exit_code == 3
    assert "interrupted before everything was checked" in ran.output
    (journal,) = (tmp_path / "out").glob("*.jsonl")
    assert f"--resume {journal}" in ran.output
    again = run(*common, "--resume", journal)
    assert again.exit_code == 1
    assert "3 operators" in again.output


def test_help_needs_no_torch() -> None:
    code = (
        "import sys, click.testing, ait_llm.cli.opcheck as module\n"
        "assert not click.testing.CliRunner().invoke(module.opcheck, ['--help']).exit_code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
