"""What the command says around its report: progress, colours, the next command."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from report_builder import comparison, decoder_report, report

from ait_llm.cli import compare as command
from ait_llm.cli import progress as module
from ait_llm.cli.compare_text import what_next
from ait_llm.cli.progress import ProgressLine, describe
from ait_llm.compare import Progress

HALF = Progress(pairs=1200, total_pairs=2000, bytes=1 << 30, total_bytes=2 << 30)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_words() -> None:
    assert describe(HALF, 4.0, bar=False) == (
        "compared 1,200 of 2,000 tensors, 1.0 GiB of 2.0 GiB, 256.0 MiB/s, 4 s left"
    )
    assert describe(HALF, 4.0, bar=True) == (
        "[##########..........]  50%  1,200 of 2,000 tensors, 256.0 MiB/s, 4 s left"
    )


@pytest.mark.parametrize(
    ("seconds", "left"), [(30, "30 s left"), (100, "1 min 40 s left"), (7300, "2 h 1 min left")]
)
def test_the_time_left_has_a_fitting_unit(seconds: float, left: str) -> None:
    assert describe(HALF, seconds, bar=False).endswith(left)


def test_no_time_is_promised_where_none_is_known() -> None:
    assert "left" not in describe(Progress(0, 0, 0, 0), 1.0, bar=True)
    assert "left" not in describe(Progress(5, 10, 0, 100), 1.0, bar=True)
    assert "left" not in describe(Progress(5, 10, 50, 100, resumed=5), 1.0, bar=True)
    assert "100%" in describe(Progress(0, 0, 0, 0), 1.0, bar=True)
    assert " 50%" in describe(Progress(5, 10, 0, 0), 1.0, bar=True)  # empty tensors have no bytes


def test_a_terminal_gets_one_line_that_moves_and_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REDRAW_SECONDS", -1)
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    with ProgressLine(stream) as line:
        line(HALF)
        line(HALF)
    first, second, blank, rest = stream.getvalue().split("\r")[1:]
    assert first == second
    assert len(first) == 39
    assert blank == " " * 39
    assert rest == ""
    assert "\n" not in stream.getvalue()


def test_a_file_gets_plain_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with ProgressLine(stream) as line:
        line(HALF)
    assert stream.getvalue() == ""
    monkeypatch.setattr(module, "LINE_SECONDS", -1)
    with ProgressLine(stream) as line:
        line(HALF)
        line(HALF)
    assert stream.getvalue().count("\n") == 2
    assert "\r" not in stream.getvalue()


def test_colours_need_a_terminal_and_no_wish_against_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not command._coloured(err=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert command._coloured(err=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not command._coloured(err=False)


WORDS = ["ait", "llm", "compare", "-gp", "a b", "-mp", "m", "--format", "csv"]


def test_the_next_command_resumes_looks_closer_or_is_none() -> None:
    journal = Path("/out/r.jsonl")
    interrupted = report(comparison(), partial=True)
    assert what_next(interrupted, WORDS, journal, ("csv",)) == (
        "ait llm compare -gp 'a b' -mp m --format csv --resume /out/r.jsonl"
    )
    assert what_next(decoder_report(), WORDS, journal, ("csv",)) == (
        "ait llm compare -gp 'a b' -mp m --format html csv"
    )
    assert what_next(decoder_report(), WORDS[:7], journal, ("csv",)) == (
        "ait llm compare -gp 'a b' -mp m --format csv html"
    )
    assert what_next(decoder_report(), WORDS, journal, ("csv", "html")) == ""
    assert what_next(report(comparison(), comparison()), WORDS, journal, ("csv",)) == ""
    assert what_next(report(comparison(1)), WORDS, journal, ("csv",)) == ""
