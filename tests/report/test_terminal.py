"""What a user reads first: in this order, in 100 columns, for any number of comparisons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_builder import (
    comparison,
    decoder_report,
    not_finite,
    problems,
    record,
    report,
    unreadable,
)

from ait_llm.core.comparison import Comparison, Origin, Report, Verdict
from ait_llm.report.terminal import terminal_lines


def text(value: Report, *args: object, **options: object) -> str:
    return "\n".join(terminal_lines(value, *args, **options))  # type: ignore[arg-type]


def test_the_verdict_comes_first_then_the_origin_the_worst_and_what_is_missing() -> None:
    lines = terminal_lines(
        replace(decoder_report(), problems=problems()), [Path("/out/a.csv")], "ait llm show /mine"
    )
    assert lines[0] == "ait llm compare: FAIL"
    names = [line[2:].split("  ")[0].strip() for line in lines[1:]]
    assert [name for name in names if name] == [
        "compared", "started", "worst", "not compared", "missing", "note", "golden", "mine",
        "report", "next",
    ]  # fmt: skip


def test_the_origin_is_told_with_its_evidence_counterpart_and_numbers() -> None:
    shown = text(decoder_report())
    assert (
        "SelfAttentionOperation_3_0_2 (id 3_0_2, token 0)\n"
        "                golden counterpart: root.model.layers.1.self_attn.attention\n"
        "                its inputs pass with 0.000225 and its output fails with 0.31\n"
        "                kind of bug: constant scale (every element is 1.31 times too large)\n"
        "                outtensor0: relative Euclidean distance 0.31 exceeds 0.01\n"
        "                largest error at [3, 17]: golden 1.25, mine 2.49\n"
        "                relative error: 0.0002254 inherited from its inputs, 0.31 introduced"
    ) in shown


def test_the_process_of_an_origin_is_told_where_there_are_several() -> None:
    value = decoder_report()
    several = replace(value, mine=replace(value.mine, processes=("0_42", "1_43")))
    assert "SelfAttentionOperation_3_0_2 (id 3_0_2, token 0, process 0_42)" in text(several)
    assert "(atb, 2 processes, token 0)" in text(several)


def test_the_worst_are_the_largest_errors_of_outputs_and_the_rest_is_counted() -> None:
    shown = terminal_lines(decoder_report(layers=8))
    place = next(number for number, line in enumerate(shown) if "  worst " in line)
    assert shown[place].endswith("by relative_euclidean_distance, of 47 tensors")
    assert shown[place + 1].endswith("token 0  LinearOperation_9_2_2 outtensor0 (0.5521 inherited)")
    assert "intensor" not in "".join(shown[place : place + 6])


def test_numbers_that_are_no_numbers_are_the_worst() -> None:
    lines = terminal_lines(report(comparison(0.5), not_finite(), comparison(0.9)))
    worst = lines[next(number for number, line in enumerate(lines) if "  worst " in line) + 1]
    assert "NaN, Inf   token 0  LinearOperation_0 outtensor0: 2 elements are not" in worst


def test_reasons_are_counted_together_and_errors_come_first() -> None:
    items = [
        comparison(
            golden=None,
            mine=record(f"op_{number}", path=f"/d/{number}.bin"),
            verdict=Verdict.SKIPPED,
            reason=f"op_{number} has no counterpart",
        )
        for number in range(1000)
    ]
    lines = terminal_lines(report(*items, unreadable(), comparison()))
    place = next(number for number, line in enumerate(lines) if "not compared" in line)
    assert "LinearOperation_0 outtensor0: the file: the file ends early" in lines[place]
    assert (
        "1,000 tensors: the operation has no counterpart (such as op_0 outtensor0)"
        in lines[place + 1]
    )


def test_nothing_compared_is_said_and_is_not_a_pass() -> None:
    lines = terminal_lines(report())
    assert lines[0] == "ait llm compare: INCOMPLETE"
    assert "nothing: neither side offers a tensor" in lines[1]


def test_a_single_pair_shows_all_its_numbers() -> None:
    shown = text(report(comparison(0.25), scenario="file"))
    assert "verdict   FAIL: relative Euclidean distance 0.25 exceeds 0.01" in shown
    assert "cosine_similarity 0.9375" in shown
    assert "relative_euclidean_distance 0.25 (limit 0.01)" in shown
    assert "max_element_error 0.03125 (limit 0.1)" in shown
    assert "kl_divergence n/a, not a distribution" in shown
    assert "golden: torch.float16 [11, 64], taken as [11, 64]" in shown
    assert "started" not in shown


def test_an_interrupted_comparison_says_so_in_its_first_line() -> None:
    assert "a part of the result" in text(report(comparison(), partial=True)).splitlines()[0]


def test_a_failure_without_an_origin_says_that_it_is_unknown() -> None:
    shown = text(report(comparison(), comparison(1)))
    assert "started   unknown: no operation was found whose outputs fail" in shown


def test_files_of_tensors_have_no_operation_and_no_token() -> None:
    items = (comparison(error, mine=record("b.safetensors", role="file")) for error in (0, 1))
    lines = terminal_lines(report(*items))
    assert not any("started" in line for line in lines)
    assert "1          b.safetensors outtensor0" in lines[3]


def test_an_uncertain_origin_names_the_other_candidates() -> None:
    origin = Origin(
        "b", "1", "Linear", 0, certain=False, candidates=("c", "d"), evidence="it fails first"
    )
    shown = text(report(comparison(1), comparison(1), origins=(origin, replace(origin, step=1))))
    assert "b (Linear, id 1, token 0)" in shown
    assert "or at: c, d" in shown
    assert "also at b (Linear, id 1, token 1)" in shown


def _wrong(op: str, *, inherited: float = 0.0, op_id: str = "", step: int = 0) -> Comparison:
    mine = record(op, op_id=op_id or op, step=step)
    return replace(comparison(1, mine=mine), inherited=inherited, introduced=1.0)


def test_operations_that_are_wrong_as_the_origin_is_are_named_with_it() -> None:
    items = (
        _wrong("attn", op_id="1"),
        _wrong("attn.q", op_id="1_0"),
        _wrong("attn.k", op_id="1_1"),
        _wrong("attn.v", op_id="1_2"),
        _wrong("attn.o", op_id="1_3", inherited=0.3),
        _wrong("attn.cached", op_id="1_4", step=1),
    )
    origin = Origin("attn.q", "1_0", "Linear", 0, evidence="it fails first")
    origin = replace(origin, device=items[0].record.device, pid=items[0].record.pid)
    shown = text(report(*items, origins=(origin,)))
    assert (
        "wrong by themselves, too (their inputs agree to the last bit): attn.k, attn.v\n" in shown
    )
    unsure = replace(origin, certain=False)
    assert "wrong by themselves" not in text(report(*items, origins=(unsure,)))


@pytest.mark.parametrize("count", [0, 1, 2, 3000])
def test_a_screen_is_enough_for_any_number_of_comparisons(count: int) -> None:
    value = report(*(comparison(0.5, mine=record(f"Linear_{n}")) for n in range(count)))
    lines = terminal_lines(value, [Path("/out/report.csv")], "ait llm show /mine")
    assert len(lines) < 25
    assert max(map(len, lines)) <= 100


def test_colours_are_only_there_when_asked_for() -> None:
    assert "\x1b" not in text(decoder_report())
    assert text(decoder_report(), colour=True).splitlines()[0] == (
        "ait llm compare: \x1b[1;31mFAIL\x1b[0m"
    )


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=[]), min_size=1))
def test_no_name_controls_the_terminal(name: str) -> None:
    item = comparison(0.5, mine=record(name, path=name), reason=name)
    origin = Origin(name, "", name, 0, evidence=name, golden_op=name)
    lines = terminal_lines(report(item, item, origins=(origin,)), [Path(name)], name)
    assert all(line.isprintable() for line in lines)


def test_paths_and_commands_are_never_broken() -> None:
    path = Path("/a folder" * 15) / "report.csv"
    lines = terminal_lines(report(comparison()), [path, path], f"ait llm show {path}")
    assert sum(line.endswith(str(path)) for line in lines) == 3
