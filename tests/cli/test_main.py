"""The host: plug-ins, exit codes, one sentence for each error, and a quick start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner

from ait_llm.cli import main as host
from ait_llm.cli.manual import ManualCommand
from ait_llm.errors import IncompleteError, UsageError
from ait_llm.probe.builds import native_builds

THIS = "tests_cli_plugins"
SHARED = {"-l", "--log-level", "-q", "--quiet", "-h", "--help"}


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four more commands, as other packages would install them; two of them are broken."""
    module = type(sys)(THIS)
    for name, error in (
        ("incomplete", IncompleteError("2 tensors are missing")),
        ("interrupt", KeyboardInterrupt()),
        ("bug", ValueError("a bug")),
    ):

        def fail(error: BaseException = error) -> NoReturn:
            raise error

        setattr(module, name, click.Command(name, callback=fail, help=f"Fails with {name}."))
    module.no_command = "text"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, THIS, module)
    entries = {
        name: EntryPoint(name, f"{THIS}:{name.replace('-', '_')}", host.GROUP)
        for name in ("incomplete", "interrupt", "bug", "no-command")
    }
    entries["absent"] = EntryPoint("absent", "no_such_package:command", host.GROUP)
    own = host.installed_commands()
    monkeypatch.setattr(host.ait, "source", lambda: {**own, **entries})


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(host.ait, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_command_that_is_called_without_its_parent_has_the_same_names_of_help() -> None:
    alone = ManualCommand("alone", callback=lambda: None, help="Does nothing.")
    result = CliRunner().invoke(alone, ["-h"])
    assert result.exit_code == 0
    assert "-h, --help" in result.stdout


def test_version_is_printed() -> None:
    from ait_llm import __version__

    assert run("--version") == (0, f"ait {__version__}\n", "")


@pytest.mark.parametrize("words", [["-V"], ["llm", "--version"], ["llm", "-V"]])
def test_the_version_is_the_same_everywhere(words: list[str]) -> None:
    assert run(*words) == run("--version")


@pytest.mark.parametrize("words", [["--version", "-v"], ["-v", "-V"], ["llm", "--version", "-v"]])
def test_the_long_version_has_the_build_of_every_native_library(words: list[str]) -> None:
    code, output, _ = run(*words)
    assert code == 0
    assert output.startswith(run("--version")[1])
    for each in native_builds(os.environ):
        assert f"\n  {each.name:<16}{each.text}" in output
    assert re.search(r"^  Python +3\.\d+", output, re.MULTILINE)


@pytest.mark.usefixtures("plugins")
def test_help_lists_every_command_and_says_which_are_broken() -> None:
    code, output, _ = run("--help")
    listed = " ".join(output.split())
    assert code == 0
    assert "llm Find the operator" in listed
    assert "incomplete Fails with incomplete." in listed
    assert "absent (broken)" in listed
    assert "ModuleNotFoundError: No module named 'no_such_package'" in listed


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "reason"), [("absent", "no_such_package"), ("no-command", "is not a click command")]
)
def test_a_broken_plug_in_is_one_sentence(name: str, reason: str) -> None:
    code, output, error = run(name)
    assert (code, output) == (2, "")
    assert error.count("\n") == 1
    assert reason in error


@pytest.mark.usefixtures("plugins")
def test_an_expected_error_is_one_sentence_with_its_exit_code() -> None:
    assert run("incomplete") == (3, "", "ait: error: 2 tensors are missing\n")


@pytest.mark.usefixtures("plugins")
def test_an_interrupt_is_130() -> None:
    code, _, error = run("interrupt")
    assert (code, error.strip()) == (130, "interrupted")


@pytest.mark.usefixtures("plugins")
def test_a_bug_of_a_plug_in_is_4_and_its_traceback_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, error = run("bug")
    (path,) = tmp_path.iterdir()
    assert (code, output) == (4, "")
    assert error == (
        "ait: error: a fault of ait itself (ValueError: a bug), not of your input; please report "
        f"it with {path}\n"
    )
    assert "raise error" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["lmm"], "there is no command 'lmm'; did you mean 'llm'?"),
        (["llm", "dmp"], "there is no command 'dmp'; did you mean 'dump'?"),
        (["llm", "zzz"], "there is no command 'zzz'; see ait llm --help"),
        (["--nope"], "there is no option '--nope'; see ait --help"),
        (["llm", "dump", "--exce", "x"], "there is no option '--exce'; did you mean '--exec'?"),
        (["llm", "dump", "-opnam", "x"], "there is no option '-opnam'; did you mean '-opname'?"),
        (["llm", "dump", "--exec", "x", "-stp1"], "no option '-stp1'; did you mean '-stp'?"),
        (["llm", "dump"], "the option --exec is missing; see ait llm dump --help"),
        (["llm", "show"], "the argument PATH is missing; see ait llm show --help"),
        (["llm", "show", "a", "b"], "got unexpected extra argument (b); see ait llm show --help"),
        (["llm", "dump", "--type", "tensr"], "'gguf'; did you mean 'tensor'?"),
        (["llm", "dump", "-stp", "x"], "the value of --save-tensor-part is wrong: 'x' is no whole"),
        (["llm", "dump", "-stp", "3"], "3 is not in the range 0<=x<=2; see ait llm dump --help"),
        (["llm", "dump", "--exec"], "option '--exec' requires an argument"),
    ],
)
def test_wrong_usage_is_2_with_a_hint(words: list[str], hint: str) -> None:
    code, output, error = run(*words)
    assert (code, output) == (2, "")
    assert error.startswith("ait: error: ")
    assert error.count("\n") == 1
    assert hint in error


def test_the_level_debug_shows_the_traceback() -> None:
    words = [sys.executable, "-m", "ait_llm", "llm", "dump", "--exec", "a > b"]
    quiet = subprocess.run(words, capture_output=True, text=True, check=False)
    loud = subprocess.run([*words, "-l", "debug"], capture_output=True, text=True, check=False)
    assert quiet.returncode == loud.returncode == UsageError.exit_code
    assert quiet.stderr.startswith("ait: error: --exec runs without a shell")
    assert quiet.stderr.count("\n") == 1
    assert "Traceback" in loud.stderr
    assert quiet.stdout == loud.stdout == ""


def modules_after(*words: str) -> set[str]:
    code = (
        "import sys\nfrom ait_llm.cli.main import ait\n"
        f"try:\n ait.main({list(words)!r})\nexcept SystemExit:\n pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(result.stderr.splitlines()[-1].split())  # behind what the command said


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["llm"], ["completion", "bash"]])
def test_the_host_starts_without_heavy_packages(words: list[str]) -> None:
    heavy = {"numpy", "ml_dtypes", "torch", "onnx", "rich", "ait_llm.dump"}
    assert not modules_after(*words) & heavy


@pytest.mark.parametrize("name", ["dump", "compare", "doctor"])
def test_our_commands_are_explained_without_torch_or_rich(name: str) -> None:
    heavy = {"torch", "onnx", "safetensors", "rich", "ray", "fsspec", "transformers"}
    assert not modules_after("llm", name, "--help") & heavy


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("doctor", {"-o", "--output", "--json", *SHARED}),
        (
            "show",
            {
                "--all",
                "--program",
                "--step",
                "--tensors",
                "--token",
                "--onnx",
                "--json",
                "--allow-skip",
                *SHARED,
            },
        ),
    ],
)
def test_the_options_of_our_commands_are_a_promise(name: str, options: set[str]) -> None:
    _, output, _ = run("llm", name, "--help")
    listed = output[output.index("Options:") :]
    assert set(re.findall(r"(?<!\w)--?[a-z][a-z-]*", listed)) == options
