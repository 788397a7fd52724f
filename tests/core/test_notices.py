"""One name for the log of the whole library, which only applications listen to."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import ait_llm
from ait_llm.core.notices import notice, show_notices

PACKAGE = Path(ait_llm.__file__).parent
# Programs of their own: run by a command, or copied into what is handed on. The embedded library
# stands in for one that prints as well, and printing is what ptdbg's parse is called for.
PROGRAMS = (
    *("cli/", "capsule/carried/", "dump/inject/site/", "dump/onnx/run_model.py", "hostatb/"),
    *(
        "opcheck/repro_script.py",
        "plan/meta_program.py",
        "plan/__main__.py",
        "__main__.py",
        "ait_llm/ptdbg.py",
    ),
)


def library_sources() -> list[Path]:
    files = [*PACKAGE.rglob("*.py"), *(PACKAGE / "opcheck").resolve().rglob("*.py")]
    return [
        file
        for file in files
        if not (f"{file}".removeprefix(f"{PACKAGE}/")).startswith(PROGRAMS)
        and not f"{file}".endswith(PROGRAMS)
    ]


def test_importing_the_library_sets_up_no_log() -> None:
    code = (
        "import logging, ait_llm, ait_llm.compare, ait_llm.dumps, ait_llm.report, ait_llm.export;"
        "ours = [n for n in logging.root.manager.loggerDict if n.startswith('ait_llm')];"
        "print([n for n in [None, *ours] if logging.getLogger(n).handlers])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_no_function_of_the_library_prints() -> None:
    found = []
    for file in library_sources():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in ("print", "sys.stderr.write", "sys.stdout.write", "logging.basicConfig"):
                found.append(f"{file}:{node.lineno}: {name}")
    allowed = f"{PACKAGE / 'core' / 'notices.py'}:"
    assert [each for each in found if not each.startswith(allowed)] == []


def test_a_notice_is_heard_under_the_name_of_the_library(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    notice("100 % is lost")
    [heard] = caplog.records
    assert (heard.name, heard.levelno) == ("ait_llm.capture", logging.WARNING)
    assert heard.getMessage() == "100 % is lost"
    assert capsys.readouterr().err == ""


def test_a_program_that_a_command_started_shows_notices_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_notices()
    show_notices()
    notice("a tensor is lost")
    assert capsys.readouterr().err == "ait: a tensor is lost\n"
