"""What the command says around its report: progress, colours, the next command."""

from __future__ import annotations

import io
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from report_builder import comparison, decoder_report, report

from ait_llm.cli import progress as module
from ait_llm.cli.compare import compare
from ait_llm.cli.compare_text import given_words, what_next
from ait_llm.cli.console import EXITS, is_coloured, marked, quiet_option, say, tell
from ait_llm.cli.progress import ProgressLine, describe, share_done
from ait_llm.compare import Progress

HALF = Progress(pairs=1200, total_pairs=2000, bytes=1 << 30, total_bytes=2 << 30)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_words() -> None:
    assert describe(HALF, 4.0) == (
        "compared 1,200 of 2,000 tensors, 1.0 GiB of 2.0 GiB, 256.0 MiB/s, 4 s left"
    )


@pytest.mark.parametrize(
    ("seconds", "left"), [(30, "30 s left"), (100, "1 min 40 s left"), (7300, "2 h 1 min left")]
)
def test_the_time_left_has_a_fitting_unit(seconds: float, left: str) -> None:
    assert describe(HALF, seconds).endswith(left)


def test_no_time_is_promised_where_none_is_known() -> None:
    assert "left" not in describe(Progress(0, 0, 0, 0), 1.0)
    assert "left" not in describe(Progress(5, 10, 0, 100), 1.0)
    assert "left" not in describe(Progress(5, 10, 50, 100, resumed=5), 1.0)


def test_the_share_that_is_done_counts_bytes_and_else_pairs() -> None:
    assert share_done(HALF) == 0.5
    assert share_done(Progress(0, 0, 0, 0)) == 1
    assert share_done(Progress(5, 10, 0, 0)) == 0.5  # empty tensors have no bytes


def test_a_terminal_gets_one_line_that_moves_and_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REDRAW_SECONDS", -1)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    stream = Terminal()
    with ProgressLine(stream) as line:
        line(HALF)
        line.count("checked", 3, "calls", 4)
    said = stream.getvalue()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    assert " 50% compared 1,200 of 2,000 tensors" in plain
    assert " 75% checked 3 of 4 calls" in plain
    assert max(map(len, re.split(r"[\r\n]", plain))) <= 80
    assert said.endswith(("\x1b[1A\x1b[2K", "\x1b[2K"))  # up to the line that was drawn, and empty


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb")])
def test_a_log_that_says_it_is_a_terminal_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "LINE_SECONDS", -1)
    stream = Terminal()
    with ProgressLine(stream) as line:
        line.count("converted", 1200, "files")
    assert stream.getvalue() == "converted 1,200 files\n"


def test_quiet_leaves_nothing_of_progress_and_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", -1)

    @click.command()
    @quiet_option
    def command() -> None:
        with ProgressLine() as line:
            line.count("checked", 1, "calls")
        say("a note")
        tell("PASS", 0, as_json=False)

    loud, quiet = (CliRunner().invoke(command, words) for words in ([], ["-q"]))
    assert loud.stderr == "checked 1 calls\na note\n"
    assert quiet.stderr == ""
    assert loud.stdout == quiet.stdout == "PASS\n"


def test_the_result_in_words_leaves_stdout_to_json(capsys: pytest.CaptureFixture[str]) -> None:
    tell("FAIL", 1, as_json=True)
    assert capsys.readouterr() == ("", "FAIL\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ait llm dump: INCOMPLETE\nPASS", "ait llm dump: \x1b[33m\x1b[1mINCOMPLETE\x1b[0m\nPASS"),
        ("ait llm api-check: FAIL: 1", "ait llm api-check: \x1b[31m\x1b[1mFAIL\x1b[0m: 1"),
        ("ait llm errcheck: no overflow", "ait llm errcheck: no overflow"),
    ],
)
def test_the_verdict_has_a_colour_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert marked(text, err=False) == text
    monkeypatch.setattr("sys.stdout", Terminal())
    assert marked(text, err=False) == shown


@pytest.mark.parametrize("code", EXITS)
def test_a_reader_at_a_terminal_is_told_what_the_exit_code_means(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr("sys.stdout", stream := Terminal())
    tell("FAIL", code, as_json=False)
    assert stream.getvalue() == f"FAIL\n  exit code {code}: {EXITS[code]}\n"


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
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert not is_coloured(err=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert is_coloured(err=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_coloured(err=False)


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
    assert what_next(decoder_report(), WORDS, journal, ("csv", "html")) == (
        "ait llm repro --dump /mine/out/ait_dump --op 3_0_2 --step 0 -o case.zip"
    )
    assert what_next(report(comparison(), comparison()), WORDS, journal, ("csv",)) == ""
    assert what_next(report(comparison(1)), WORDS, journal, ("csv",)) == ""


@pytest.mark.parametrize("switch", ["--ledger", "--no-ledger", "--deep"])
def test_the_next_command_spells_a_switch_as_it_was_given(switch: str) -> None:
    words = ["-gp", "golden", "-mp", "mine", switch]
    with compare.make_context("compare", words, resilient_parsing=False) as context:
        assert given_words(context)[3:].count(switch) == 1
        assert not {"True", "False"} & set(given_words(context))


def test_an_estimate_rests_on_the_pace_of_comparing_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and matching took 100 seconds; then 10 bytes are compared each second."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    for name, value in (("TERM", "xterm"), ("CI", ""), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    shown: list[str] = []
    with ProgressLine(Terminal()) as line:
        monkeypatch.setattr(line, "_write", lambda text, share: shown.append(text))
        line.begin("reading and matching both sides")
        for clock[0], done in ((100.0, 10), (101.0, 20), (105.0, 60)):
            line(Progress(done, 100, done, 100))
    assert shown[0] == "reading and matching both sides"
    assert shown[-1].endswith("10 B/s, 4 s left")
