"""Somebody installs the wheel on a bare machine and follows what is written.

The README's five minutes and the page on them are run as they stand, in an environment that has the
wheel and what it declares, and nothing of this checkout.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from doc_pages import DOCS, ROOT, Captures, Shell, blocks, check_page
from newcomer import Newcomer, set_up

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.native,
    pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler"),
]


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Newcomer:
    """With ``pip install 'ait-llm[all]'``, as the README says."""
    return set_up(tmp_path_factory.mktemp("newcomer"), wheel, "all")


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Captures:
    """The README and the five minutes begin with the same two runs."""
    return Captures(tmp_path_factory.mktemp("captures"))


@pytest.fixture
def shell(newcomer: Newcomer, captures: Captures, tmp_path: Path) -> Shell:
    """A terminal in a folder that looks like a fresh checkout after its installation."""
    (tmp_path / ".venv").symlink_to(newcomer.home / ".venv")
    return Shell(tmp_path, newcomer.environment, captures, in_process=False)


def test_nothing_of_the_checkout_is_seen(shell: Shell) -> None:
    code = "import sys, ait_llm; print(*sys.path, ait_llm.__file__, sep='\\n')"
    ran = shell.run(f'python -c "{code}"')
    assert ran.exit_code == 0
    assert str(ROOT) not in ran.output
    assert ran.output.splitlines()[-1].endswith("site-packages/ait_llm/__init__.py")


def test_the_five_minutes_of_the_readme(shell: Shell) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    commands = [block.text for block in blocks(text) if block.language == "bash"][1]
    joined = commands.replace("\\\n", " ").splitlines()
    *first, last = [line for line in joined if line and not line.startswith("#")]
    for command in first:
        ran = shell.run(command)
        assert ran.exit_code == 0, f"{command}\n{ran.output}"
    ran = shell.run(last)
    assert ran.exit_code == 1, ran.output  # as the README says: tensors failed
    named = text.partition("The comparison names `")[2].partition("`")[0]
    assert f" started       {named} " in ran.output
    for block in blocks(text):
        if block.language == "python":
            (shell.folder / "snippet.py").write_text(block.text, "utf-8")
            ran = shell.run("python snippet.py")
            assert ran.exit_code == 0, f"{block.text}\n{ran.output}"


MODEL = """
import torch
from torch import nn

torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32, eps={eps})
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

model = nn.Sequential(*(Block() for _ in range(3))).eval()
with torch.no_grad():
    print(float(model(torch.randn(1, 5, 32)).sum()))
"""


def test_three_commands_lead_to_a_verdict_on_a_program_of_ones_own(shell: Shell) -> None:
    """Those that the command shows where nothing was asked, on programs that know nothing of it."""
    for name, eps in (("trusted", "1e-5"), ("mine", "1e-2")):
        (shell.folder / f"{name}.py").write_text(MODEL.replace("{eps}", eps), "utf-8")
    listed = shell.run("ait llm").output.partition("Examples:\n")[2].splitlines()
    golden, mine, compare = (line.strip() for line in listed)
    for command in (golden, mine):
        ran = shell.run(command)
        assert ran.exit_code == 0, f"{command}\n{ran.output}"
    ran = shell.run(compare)
    assert ran.exit_code == 1, ran.output
    assert "\nait llm compare: FAIL\n" in ran.output, ran.output
    started = ran.output.partition(" started ")[2]
    assert "root.0.norm" in started.splitlines()[0], ran.output
    assert "`eps` of `root.0.norm` is 0.01 instead of 1e-05" in " ".join(started.split())
    assert list((shell.folder / "report").glob("*.html"))


@pytest.mark.parametrize("page", ["start", "doctor"])
def test_a_page_for_newcomers_prints_what_it_shows(page: str, shell: Shell) -> None:
    check_page((DOCS / f"{page}.md").read_text("utf-8"), shell)
