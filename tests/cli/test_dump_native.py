"""``ait llm dump`` end to end: a real program, the real probe, real files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ait_llm.probe.library import find_packaged

pytestmark = pytest.mark.native
SUPPORT = Path(__file__).parents[1] / "support"
COMMAND = [sys.executable, "-m", "ait_llm", "llm"]


@dataclass(frozen=True)
class Host:
    """A program built against hostatb, and the environment to run it in."""

    program: Path
    environ: dict[str, str]


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return build(1, tmp_path_factory.mktemp("host1"))


@pytest.fixture(scope="session", params=[0, 1], ids=["abi0", "abi1"])
def any_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return build(request.param, tmp_path_factory.mktemp("host"))


def build(abi: int, folder: Path) -> Host:
    library = find_packaged(f"hostatb/cxx_abi_{abi}/lib/libatb.so", os.environ)
    probe = find_packaged(f"libatb_probe_abi{abi}.so", os.environ)
    compiler = shutil.which("c++")
    if library is None or probe is None or compiler is None:
        pytest.skip("needs the compiled libraries and a C++ compiler")
    program = folder / "atb_host"
    subprocess.run(
        [
            compiler, "-std=c++17", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-o", str(program),
            str(SUPPORT / "atb_host.cpp"), str(library), f"-Wl,-rpath,{library.parent}",
            # The runtime library looks for its own dependencies when the program starts.
            "-Wl,--allow-shlib-undefined",
            "-rdynamic",  # its aclrtGetDevice is found before that of hostatb
        ],
        check=True,
    )  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATB_")}
    return Host(program, {**kept, "ATB_HOME_PATH": str(library.parent.parent)})


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str
    output: Path

    @property
    def summary(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return value

    def files(self, pattern: str) -> list[Path]:
        return sorted((self.output / "ait_dump").glob(pattern))


def dump(host: Host, output: Path, command: str, *words: str, **changes: str) -> Ran:
    done = subprocess.run(
        [*COMMAND, "dump", "--exec", command, "-o", str(output), "--json", *words],
        env={**host.environ, **changes},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Ran(done.returncode, done.stdout, done.stderr, output)


def test_everything_is_captured_and_added_up(any_host: Host, tmp_path: Path) -> None:
    types = ("tensor", "layer", "op", "cpu_profiling", "onnx")
    ran = dump(any_host, tmp_path, f"{any_host.program} 3", "--type", *types, "-er", "0,1")
    assert ran.code == 0, ran.stderr
    assert ran.stdout.startswith("result 42\n")
    summary = ran.summary
    assert {n: summary[n] for n in ("steps", "operations", "tensors", "bytes", "files")} == {
        "steps": [0, 1], "operations": 2, "tensors": 6, "bytes": 48, "files": summary["files"],
    }  # fmt: skip
    assert (summary["sealed"], summary["devices"], summary["complete"]) == (True, ["0"], True)
    (ledger,) = ran.files("ledger/*.jsonl")
    assert json.loads(ledger.read_text().partition("\n")[0])["soc"] == "Ascend910B4"
    assert len(ran.files("tensors/0_*/[01]/0_AddOperation/after/*.bin")) == 6
    assert len(ran.files("operation_io_tensors/*/operation_tensors_[01].csv")) == 2
    assert [p.name for p in ran.files("layer/*/*.onnx")] == ["AddOperation_0.onnx"]
    assert summary["onnx"] == [str(path) for path in ran.files("layer/*/*.onnx")]
    (csv, *_) = ran.files("cpu_profiling/*/operation_statistic_1.csv")
    assert csv.read_text() == "opname,setup_runnerSetupTime,setup_totalTime\nAddOperation_0,4,9\n"
    assert "[setup] totalTime:9" in csv.with_suffix(".txt").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["ait_dump"]


def test_what_was_captured_can_be_shown(host: Host, tmp_path: Path) -> None:
    ran = dump(host, tmp_path, f"{host.program}")
    words = ran.summary["next"].split()
    assert words[:3] == ["ait", "llm", "show"]
    shown = subprocess.run(
        [*COMMAND, *words[2:], "--tensors"], capture_output=True, text=True, check=True
    )
    assert "AddOperation" in shown.stdout
    assert "after/outtensor0" in shown.stdout


def test_a_script_may_redirect_and_the_command_may_quote(host: Host, tmp_path: Path) -> None:
    script = tmp_path / "my run.sh"
    script.write_text(f'{host.program} "$1" > "{tmp_path}/log"\n')
    ran = dump(host, tmp_path / "out", f"bash '{script}' 2")
    assert ran.code == 0, ran.stderr
    assert (tmp_path / "log").read_text() == "result 42\n"
    assert "result 42" not in ran.stdout


@pytest.mark.parametrize(
    ("ending", "code", "end"), [("7", 7, "exit"), ("kill", 137, "signal 9"), ("_exit", 0, "_exit")]
)
def test_however_the_program_ends_its_code_is_passed_on_and_the_ledger_sealed(
    host: Host, tmp_path: Path, ending: str, code: int, end: str
) -> None:
    ran = dump(host, tmp_path, f"{host.program} 1 {ending}")
    assert ran.code == code, ran.stderr
    (process,) = ran.summary["processes"]
    assert (process["sealed"], process["end"], process["tensors"]) == (True, end, 3)


def test_a_program_without_atb_is_incomplete_with_the_reasons(host: Host, tmp_path: Path) -> None:
    ran = dump(host, tmp_path, "true")
    assert ran.code == 3
    assert "no ATB call was seen" in ran.stderr
    assert "capture it with: ait llm dump --type torch --exec true. Other" in ran.stderr
    assert "statically" in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-er", "5,9"], "never reached the step range -er 5,9"),
        (["-ids", "4"], "no operation has id 4"),
        (["-opname", "self"], "a type starting with 'self'"),
        (["-device", "3"], "nothing ran on device 3"),
    ],
)
def test_a_selection_that_matches_nothing_is_incomplete_and_named(
    host: Host, tmp_path: Path, words: list[str], reason: str
) -> None:
    ran = dump(host, tmp_path, f"{host.program}", *words)
    assert ran.code == 3, ran.stderr
    assert "ATB was seen, but no operation was selected" in ran.stderr
    assert reason in ran.stderr


def test_a_second_run_leaves_the_first_untouched(host: Host, tmp_path: Path) -> None:
    words = ("--type", "tensor", "cpu_profiling")
    first = dump(host, tmp_path, f"{host.program} 2", *words, "-er", "0,1")
    before = {path: path.read_bytes() for path in first.files("**/*") if path.is_file()}
    second = dump(host, tmp_path, f"{host.program}", *words)
    assert second.summary["operations"] == 1
    assert {path: path.read_bytes() for path in before} == before
    assert len(second.files("cpu_profiling/*")) == 2


def test_two_processes_of_torchrun_are_two_devices(host: Host, tmp_path: Path) -> None:
    torchrun = Path(sys.executable).parent / "torchrun"
    command = f"{torchrun} --no-python --nproc-per-node 2 {host.program} 2"
    ran = dump(host, tmp_path, command, OMP_NUM_THREADS="1")
    assert ran.code == 0, ran.stderr
    assert ran.summary["devices"] == ["0", "1"]
    assert [process["sealed"] for process in ran.summary["processes"]] == [True, True]


def test_a_probe_of_the_other_abi_is_refused_before_the_start(
    any_host: Host, tmp_path: Path
) -> None:
    abi = int(any_host.environ["ATB_HOME_PATH"][-1])
    other = find_packaged(f"libatb_probe_abi{1 - abi}.so", os.environ)
    ran = dump(any_host, tmp_path, f"{any_host.program}", "--probe-lib", str(other))
    assert ran.code == 2
    assert ran.stdout == ""
    assert f"built for C++ ABI {1 - abi}" in ran.stderr


def test_the_wrong_atb_home_is_noticed_after_the_run(any_host: Host, tmp_path: Path) -> None:
    abi = int(any_host.environ["ATB_HOME_PATH"][-1])
    home = f"{any_host.environ['ATB_HOME_PATH'][:-1]}{1 - abi}"
    ran = dump(any_host, tmp_path, f"{any_host.program}", ATB_HOME_PATH=home)
    assert ran.code == 3
    assert "of another C++ ABI than" in ran.stderr
