"""What is in a capsule, and how its script is used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from capsules import run_alone, unpacked
from operator_dumps import LINEAR, OperatorDump
from safetensors.torch import load_file

from ait_llm.capsule import make_capsule
from ait_llm.errors import UsageError

X = torch.linspace(1, 2, 64).reshape(4, 16).half()
RIGHT = (X.double() @ X.double().T).half()
WRONG = RIGHT.clone()
WRONG[2, 1:] *= 1.5


@pytest.fixture
def dump(tmp_path: Path) -> OperatorDump:
    """A wrong Linear at step 0 and its right output at step 1."""
    dump = OperatorDump(tmp_path / "ait_dump")
    dump.add("0_LinearOperation", [X, X], [WRONG], LINEAR)
    dump.ledger()
    OperatorDump(dump.root, step=1).add("0_LinearOperation", [X, X], [RIGHT], LINEAR)
    header = dump.root / "ledger" / "0_4242.jsonl"
    line, *rest = header.read_text().splitlines()
    facts = json.loads(line) | {
        "version": "0.1.0",
        "abi": 1,
        "host": "node7",
        "executable": "/usr/bin/python3.11",
        "environment": {"ATB_HOME_PATH": "/usr/local/atb", "ATB_MATMUL_SHUFFLE_K_ENABLE": "1"},
        "options": {"ATB_DUMP_TYPE": "tensor", "ATB_OUTPUT_DIR": "/home/me/out"},
    }
    header.write_text("\n".join([json.dumps(facts), *rest]) + "\n")
    return dump


def run(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *words], capture_output=True, text=True, check=False
    )


def test_the_same_case_gives_the_same_bytes_and_files_for_the_group(
    dump: OperatorDump, tmp_path: Path
) -> None:
    first = make_capsule(dump.root, "0", tmp_path / "a.zip").path
    second = make_capsule(dump.root, "0", tmp_path / "b.zip").path
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode & 0o777 == 0o640
    with zipfile.ZipFile(first) as archive:
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o100640}
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        names = archive.namelist()
    assert names[0] == "README.md"
    assert {"run.py", "kernel.py", "case.json", "case.safetensors", "source/linear.py"} <= {*names}


def test_nothing_in_it_names_a_path_of_the_host(dump: OperatorDump, tmp_path: Path) -> None:
    with zipfile.ZipFile(make_capsule(dump.root, "0", tmp_path / "a.zip").path) as archive:
        for name in archive.namelist():
            text = archive.read(name).decode(errors="replace")
            assert str(tmp_path) not in text
            assert not re.search(r"/(home|usr|root|tmp|work)/", text), name


def test_the_environment_of_the_capture_is_in_it(dump: OperatorDump, tmp_path: Path) -> None:
    script = unpacked(make_capsule(dump.root, "0", tmp_path / "a.zip").path)
    found = json.loads(script.with_name("case.json").read_text())["environment"]
    assert found["abi"] == 1
    assert (found["version"], found["host"], found["device"]) == ("0.1.0", "node7", "0")
    assert found["environment"] == {"ATB_MATMUL_SHUFFLE_K_ENABLE": "1"}
    assert found["options"] == {"ATB_DUMP_TYPE": "tensor"}


def test_tensors_are_those_of_the_dump_and_bounds_are_those_of_the_contract(
    dump: OperatorDump, tmp_path: Path
) -> None:
    script = unpacked(make_capsule(dump.root, "0", tmp_path / "a.zip").path)
    tensors = load_file(script.with_name("case.safetensors"))
    assert torch.equal(tensors["intensor1"], X)
    assert torch.equal(tensors["golden"], RIGHT)
    assert torch.equal(tensors["dumped"], WRONG)
    exact = X.double() @ X.double().T
    half_spacing = 2.0 ** (torch.floor(torch.log2(exact)) - 10) / 2
    assert bool((tensors["bound"] >= half_spacing).all())
    assert bool((tensors["bound"] <= 1.1 * half_spacing).all())


def test_step_and_output_are_chosen_and_a_right_one_passes(
    dump: OperatorDump, tmp_path: Path
) -> None:
    made = make_capsule(dump.root, "0", tmp_path / "a.zip", step=1, output="outtensor0")
    assert made.passed
    ran = run(unpacked(made.path))
    assert ran.returncode == 0, ran.stderr
    assert "PASS dumped: 0 of 16 elements are beyond their bound" in ran.stdout


def test_a_small_capsule_of_a_right_operator_is_as_dumped(
    dump: OperatorDump, tmp_path: Path
) -> None:
    made = make_capsule(dump.root, "0", tmp_path / "a.zip", step=1, smaller=True)
    assert made.shrunk is not None
    assert made.shrunk["shapes_before"] == made.shrunk["shapes_after"]


def test_a_changed_golden_a_lost_file_and_a_missing_library_are_no_verdict(
    dump: OperatorDump, tmp_path: Path
) -> None:
    script = unpacked(make_capsule(dump.root, "0", tmp_path / "a.zip").path)
    ran = run(script, "--rerun")
    assert (ran.returncode, "torch_atb is not installed here" in ran.stderr) == (2, True)
    source = script.parent / "source" / "linear.py"
    source.write_text(
        source.read_text() + "\n\ndef compute(inputs, params, arithmetic):\n"
        "    return Result((inputs[0] @ inputs[1].T * 2,))\n"
    )
    ran = run(script)
    assert (ran.returncode, "is not the golden of the capsule" in ran.stderr) == (2, True)
    data = script.with_name("case.safetensors")
    data.write_bytes(data.read_bytes()[:-100])
    ran = run(script)
    assert (ran.returncode, "are cut off; copy it again" in ran.stderr) == (2, True)
    data.write_bytes((0).to_bytes(8, "little"))
    ran = run(script)
    assert (ran.returncode, ran.stderr) == (2, "case.safetensors: it is damaged; copy it again\n")


def test_facts_of_wrong_types_are_one_sentence(dump: OperatorDump, tmp_path: Path) -> None:
    script = unpacked(make_capsule(dump.root, "0", tmp_path / "a.zip").path)
    case = script.with_name("case.json")
    case.write_text(json.dumps(json.loads(case.read_text()) | {"contract": 0.5}))
    ran = run(script)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.fullmatch(r"case\.json: it is damaged \(.*\); copy it again\n", ran.stderr)


def test_it_runs_the_operator_again_with_the_library(dump: OperatorDump, tmp_path: Path) -> None:
    script = unpacked(make_capsule(dump.root, "0", tmp_path / "a.zip").path)
    script.with_name("torch_atb.py").write_text(
        "from ait_llm.hostatb import *\nfrom ait_llm.hostatb import LinearParam, Operation\n"
    )
    ran = run(script, "--rerun")
    assert ran.returncode == 0, ran.stderr
    assert "PASS rerun: 0 of 16 elements are beyond their bound" in ran.stdout


def test_kernels_of_the_user_are_judged(dump: OperatorDump, tmp_path: Path) -> None:
    script = unpacked(make_capsule(dump.root, "0", tmp_path / "a.zip").path)
    expected: list[tuple[str, int, str]] = [
        ("(inputs[0].float() @ inputs[1].float().T).half()", 0, "PASS kernel"),
        ("((inputs[0].float() @ inputs[1].float().T).half() * 1.002,)", 1, "FAIL kernel"),
        ("inputs[0]", 1, "its shape is [4, 16], golden's is [4, 4]"),
        ("inputs[0].double() @ inputs[1].double().T", 1, "its data type is torch.float64"),
        ("inputs[7]", 2, "IndexError"),
    ]
    commands = []
    for number, (returned, _, _) in enumerate(expected):
        kernel = tmp_path / f"kernel{number}.py"
        asserted = "    assert params['transposeB']"
        kernel.write_text(
            f"def f(inputs, params):\n{asserted}\n    inputs[0] += 0\n    return {returned}\n"
        )
        commands.append([script, "--kernel", f"{kernel}:f"])
    for (returned, code, said), (ended, text) in zip(expected, run_alone(commands), strict=True):
        assert (returned, ended, said in text) == (returned, code, True), text


def test_a_dump_without_golden_and_another_kind_of_dump_are_told(tmp_path: Path) -> None:
    dump = OperatorDump(tmp_path / "ait_dump")
    dump.add("0_MyOwnOperation", [X], [X], {})
    with pytest.raises(UsageError, match="MyOwnOperation 0: there is no golden MyOwnOperation"):
        make_capsule(dump.root, "0", tmp_path / "a.zip")
