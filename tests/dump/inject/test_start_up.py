"""What the start-up code does to programs: with and without torch, and beside their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ait_llm.dump.inject.channel import Report, read_reports
from ait_llm.dump.inject.settings import (
    SITE_FOLDER,
    VARIABLE,
    TorchSettings,
    injection_environment,
)

# Stands in for torch: importing it is all that these programs do.
TORCH = "import sys\nversion = 1\n"


class Program:
    """Runs programs with the capture in their environment."""

    def __init__(self, folder: Path) -> None:
        self.channel = folder / "channel"
        self.output = folder / "out"
        self.path = folder / "path"
        for made in (self.channel, self.output, self.path):
            made.mkdir()
        (self.path / "torch.py").write_text(TORCH)
        base = {name: text for name, text in os.environ.items() if not name.startswith("AIT_")}
        base["PYTHONPATH"] = str(self.path)
        self.environment = injection_environment(
            TorchSettings(output=self.output), base, self.channel
        )

    def run(self, code: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *options, "-c", code],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def reports(self) -> list[Report]:
        return list(read_reports(self.channel))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_a_program_without_torch_loads_nothing_and_writes_nothing(program: Program) -> None:
    code = "import sys; print(*sorted(sys.modules))"
    loaded = set(program.run(code).stdout.split())
    bare = set(program.run(code, AIT_TORCH_CAPTURE="").stdout.split())
    # an editable installation of ours has loaded __future__ before
    assert loaded - bare - {"__future__"} == {"ait_torch_capture"}
    assert not list(program.channel.iterdir())
    assert not list(program.output.iterdir())


def test_the_import_path_is_that_of_the_program(program: Program) -> None:
    code = "import sys; print(sys.path)"
    assert str(SITE_FOLDER) not in program.run(code).stdout
    alone = program.run(code, PYTHONPATH=str(program.path))
    assert program.run(code).stdout == alone.stdout


def test_children_inherit_the_capture(program: Program) -> None:
    child = "import torch"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    program.run(code)
    assert "torch" in [report.event for report in program.reports]


def test_asking_where_torch_is_does_not_start_the_capture_but_importing_does(
    program: Program,
) -> None:
    asked = program.run("import importlib.util as u; print(bool(u.find_spec('torch')))")
    assert (asked.stdout, program.reports) == ("True\n", [])
    code = (
        "import importlib.util as u, sys; u.find_spec('torch'); import torch\n"
        "print(torch.version, type(torch.__loader__).__name__, torch.__spec__.loader is "
        "torch.__loader__, [f for f in sys.meta_path if type(f).__module__.startswith('ait_')])"
    )
    assert program.run(code).stdout == "1 SourceFileLoader True []\n"
    assert "torch" in [report.event for report in program.reports]


def test_a_failure_at_start_up_is_one_line_and_the_program_goes_on(program: Program) -> None:
    done = program.run("import torch; print('goes on')")
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("ait: nothing of this process is captured: ")
    assert [report.event for report in program.reports] == ["torch", "failed"]
    assert program.reports[1].facts["executable"] == sys.executable


def test_an_import_error_of_torch_is_the_programs_own(program: Program) -> None:
    (program.path / "torch.py").write_text("raise ImportError('broken torch')")
    done = program.run("import torch")
    assert done.returncode == 1
    assert "ImportError: broken torch" in done.stderr
    assert program.reports == []


def test_the_programs_own_start_up_modules_run(program: Program) -> None:
    (program.path / "sitecustomize.py").write_text("value = 'own'\nprint('site')\n")
    code = "import sys, sitecustomize; print(sitecustomize.value)"
    assert program.run(code).stdout == "site\nown\n"


def test_a_failure_of_the_programs_own_start_up_module_shows_as_without_us(
    program: Program,
) -> None:
    (program.path / "sitecustomize.py").write_text("import nowhere_to_be_found\n")
    done = program.run("print('goes on')")
    assert done.stdout == "goes on\n"
    assert "No module named 'nowhere_to_be_found'" in done.stderr


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_isolated_interpreter_is_left_alone(program: Program, option: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(program.path)!r}); import torch; print('ran')"
    done = program.run(code, option)
    assert (done.stdout, done.stderr, program.reports) == ("ran\n", "", [])


def test_damaged_settings_are_said_once(program: Program) -> None:
    done = program.run("import torch", **{VARIABLE: "{"})
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
