"""Results in Chinese keep their columns, and say sentences whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ait_llm.cli.localised import cells
from ait_llm.cli.spoken import spoken
from ait_llm.language import speaking

RESULT = """\
ait llm compare: FAIL
  compared      736 of 961 tensors in 160 operations: 525 PASS, 211 FAIL
  started       SelfAttentionOperation_3_0_2_1 (id 3_0_2_1, token 0)
                from its own inputs recomputed, outtensor0 is off by 0.14 where rounding permits
                  0.0014; [2, 1, 2] is 0.396973 and should be 0.0856389
  not compared  108 tensors: the golden dump has no operator for the key/value cache (such as
                  Prefill_layer_2 intensor10)
  report        /tmp/report/a.csv
                /tmp/report/a.html"""


@pytest.fixture(autouse=True)
def chinese() -> Iterator[None]:
    with speaking("zh"):
        yield


def test_a_sentence_that_goes_on_in_the_next_line_is_said_whole() -> None:
    assert "outtensor0 相差 0.14，而舍入只允许 0.0014；[2, 1, 2] 处是" in spoken(RESULT)
    assert "标杆 dump 中没有键值缓存的算子（例如 Prefill_layer_2 intensor10）" in spoken(RESULT)


def test_what_is_said_stands_in_the_column_of_the_english_one() -> None:
    lines = spoken(RESULT).split("\n")
    for start, text in (
        ("  已比较", "160 个算子"),
        ("  起始于", "SelfAttention"),
        ("  报告", "/tmp/report/a.csv"),
    ):
        (line,) = (line for line in lines if line.startswith(start))
        assert cells(line[: line.index(text)]) == 16


def test_no_line_is_wider_than_100_columns() -> None:
    assert max(map(cells, spoken(RESULT).split("\n"))) <= 100


def test_paths_and_commands_are_left_as_they_are() -> None:
    text = (
        "ait llm dump: complete\n"
        "  lost  nothing; every process sealed its ledger\n"
        "  next  ait llm show /tmp/all operations/x"
    )
    assert spoken(text).split("\n")[2] == "  下一步  ait llm show /tmp/all operations/x"


def test_lines_wrapped_at_a_width_are_joined_where_the_next_word_did_not_fit() -> None:
    text = (
        "ait llm plan: 13.1 MiB in 3,555 files, about 3.1 s\n"
        "  1        801.5 KiB in 1,201 files, about 2.9 s: names the operator; inputs are\n"
        "           known as outputs of others\n"
        "           ait llm dump -o out"
    )
    lines = spoken(text, 80).split("\n")
    assert "输入可由其他算子的输" in lines[1] + lines[2]
    assert lines[-1] == "           ait llm dump -o out"


def test_english_is_left_alone() -> None:
    with speaking("en"):
        assert spoken(RESULT) is RESULT
