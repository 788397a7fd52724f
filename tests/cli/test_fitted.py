"""Results in the columns of a terminal, from a narrow one to a wide one."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from compare_dumps import AtbPair

from ait_llm.cli.fitted import fit_line
from ait_llm.cli.localised import cells

SENTENCE = "  note    outputs passed: its inputs were saved after it ran, so that is not checked"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_line_goes_on_below_its_value(width: int) -> None:
    pieces = fit_line(SENTENCE, width)
    assert all(len(piece) <= width for piece in pieces)
    assert " ".join(" ".join(pieces).split()) == " ".join(SENTENCE.split())
    assert all(piece.startswith(" " * 10) and piece[10] != " " for piece in pieces[1:])


def test_a_title_goes_on_as_well() -> None:
    pieces = fit_line("ait llm opcheck: FAIL: 63 operators, outputs: 69 PASS, 10 FAIL", 40)
    assert len(pieces) == 2
    assert max(map(len, pieces)) <= 40


def test_chinese_goes_on_between_any_two_characters() -> None:
    pieces = fit_line("  说明    输入在算子执行之后才保存因此未检查它必须保持不变的内容", 40)
    assert len(pieces) == 2
    assert all(cells(piece) <= 40 for piece in pieces)


@pytest.mark.parametrize(
    "line",
    [
        "  next    ait llm show /a/folder/with/a/long/name/of/a/dump --tensors",
        "  into    /a/folder/with/a/long/name/of/a/dump/that/is/one/word/to/be/copied",
    ],
)
def test_what_is_copied_stays_whole(line: str) -> None:
    assert any(line.split(maxsplit=1)[1] in piece for piece in fit_line(line, 40))


def on_a_terminal(columns: int, folder: Path, *words: str) -> list[str]:
    """The lines that a command shows on a terminal of that many columns."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    hidden = ("COLUMNS", "CI", "AIT_LANG")
    environment = {name: each for name, each in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        [sys.executable, "-m", "ait_llm", "--lang", "en", "llm", *words],
        stdin=inside,
        stdout=inside,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={**environment, "NO_COLOR": "1"},
    )
    os.close(inside)
    said = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    process.wait()
    os.close(terminal)
    return said.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("columns", [60, 200])
def test_a_comparison_follows_the_width_of_the_terminal(columns: int, tmp_path: Path) -> None:
    pair = AtbPair(tmp_path)
    array = np.linspace(1, 2, 64, dtype=np.float32).reshape(8, 8)
    pair.add("0_LinearOperation", array, array * np.float32(1.1))
    lines = on_a_terminal(
        columns, tmp_path, "compare", "-gp", "golden", "-mp", "mine", "-o", "report"
    )
    assert lines[0].startswith("ait llm compare: FAIL")
    texts = [line for line in lines if "/" not in line]  # paths and commands stay whole
    assert max(map(len, texts)) <= columns
    assert columns == 60 or max(map(len, texts)) > 100
