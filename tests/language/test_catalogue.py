"""How a message finds its translation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.language import Catalogue

ENTRIES = {
    "{path}: it is empty": "{path}：是空的",
    ". ": "。",
    ": ": "：",
    ", ": "，",
    "{number} operations": "{number} 个算子",
    "Dump it again": "请重新采集",
    "it has {number of rows} rows, not {wanted}": "应有 {wanted} 行，实有 {number of rows} 行",
    'write {{"a": 1}} into {path}': '请在 {path} 中写入 {{"a": 1}}',
    "a set is written as {{1, 2}}": "集合写作 {{1, 2}}",
    "{name} and {name} again": "{name} 再次 {name}",
    "@process": "进程",
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue(ENTRIES)


def test_a_message_with_values_finds_its_template(catalogue: Catalogue) -> None:
    assert catalogue.translate("/tmp/a b.bin: it is empty") == "/tmp/a b.bin：是空的"


def test_values_change_places_with_their_names(catalogue: Catalogue) -> None:
    assert catalogue.translate("it has 3 rows, not 4") == "应有 4 行，实有 3 行"


def test_clauses_within_a_message_are_translated_too(catalogue: Catalogue) -> None:
    text = "a.csv: it has 3 rows, not 4. Dump it again"
    assert catalogue.translate(text) == "a.csv：应有 4 行，实有 3 行。请重新采集"


def test_doubled_braces_are_braces(catalogue: Catalogue) -> None:
    assert catalogue.translate('write {"a": 1} into f') == '请在 f 中写入 {"a": 1}'
    assert catalogue.translate("a set is written as {1, 2}") == "集合写作 {1, 2}"


def test_a_name_that_comes_twice_must_have_one_value(catalogue: Catalogue) -> None:
    assert catalogue.translate("a and a again") == "a 再次 a"
    assert catalogue.translate("a and b again") == "a and b again"


def test_columns_and_lists_are_said_part_by_part(catalogue: Catalogue) -> None:
    assert catalogue.translate("  process   3 operations, 2 kernels") == (
        "  进程   3 个算子，2 kernels"
    )


@given(st.text())
def test_what_no_entry_knows_stays_as_it_is(text: str) -> None:
    assert Catalogue({"{path}: it is empty": "{path}：是空的"}).translate(text + "?") == text + "?"


@given(st.text(min_size=1).filter(lambda text: "\n" not in text and text == text.strip()))
def test_a_value_that_is_no_message_is_kept_as_it_is(value: str) -> None:
    found = Catalogue({"{path}: it is empty": "{path}：是空的"}).translate(f"{value}: it is empty")
    assert found == f"{value}：是空的"
