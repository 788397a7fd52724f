"""Options that take several words, and values with units."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ait_llm.cli.params import ListOption, ManyOption, WordsCommand, comma_list, join_words
from ait_llm.cli.params import parse_size as parse
from ait_llm.errors import UsageError

PARAMS = [
    ManyOption(["--type"]),
    ListOption(["-ids", "--save-operation-ids"]),
    click.Option(["-o", "--output"]),
    click.Option(["-sd"], is_flag=True),
    click.Option(["-v"], count=True),
]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--type layer tensor", "--type layer --type tensor"),
        ("--type layer --type tensor", "--type layer --type tensor"),
        ("--type=layer tensor -sd", "--type layer --type tensor -sd"),
        ("--type layer -sd tensor", "--type layer -sd tensor"),
        ("-sd --type layer", "-sd --type layer"),
        ("-v --type layer tensor -v", "-v --type layer --type tensor -v"),
        ("-ids 2, 3_1", "-ids 2,3_1"),
        ("-ids 2 ,3_1", "-ids 2,3_1"),
        ("-ids 2 , 3_1 -sd", "-ids 2,3_1 -sd"),
        ("-ids=2, 3", "-ids 2,3"),
        ("-ids 2 3", "-ids 2 3"),
        ("-ids 2, -sd", "-ids 2, -sd"),
        ("--save-operation-ids 1, 2, 3", "--save-operation-ids 1,2,3"),
        ("-o --type x", "-o --type x"),
        ("-- --type a b", "-- --type a b"),
        ("--type", "--type"),
        ("", ""),
    ],
)
def test_words_are_joined_to_their_option(words: str, expected: str) -> None:
    assert join_words(PARAMS, words.split()) == expected.split()


@given(st.lists(st.sampled_from(["a", "b c", "", "2,", "-o", "x=y"])))
def test_words_without_such_options_are_kept(words: list[str]) -> None:
    assert join_words([click.Option(["-o"])], words) == words


def test_a_command_with_such_options_parses_in_any_order() -> None:
    @click.command(cls=WordsCommand)
    @click.option("--type", "types", cls=ManyOption)
    @click.option("-ids", cls=ListOption)
    def command(types: tuple[str, ...], ids: str) -> None:
        click.echo(f"{types} {ids}")

    result = CliRunner().invoke(command, ["--type", "a", "b", "-ids", "2,", "3_1", "--type", "c"])
    assert result.output == "('a', 'b', 'c') 2,3_1\n"


@pytest.mark.parametrize(
    ("text", "fields"),
    [("2, 3_1", ["2", "3_1"]), ("a\uff0cb", ["a", "b"]), (",", []), ("1,,2,", ["1", "2"])],
)
def test_comma_lists_are_split_and_trimmed(text: str, fields: list[str]) -> None:
    assert comma_list(text) == fields


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("512", 512), ("1K", 1024), ("1k", 1024), ("64KiB", 65536), ("64kb", 65536),
        ("256M", 268435456), ("1.5g", 1610612736), ("2 T", 2199023255552),
    ],
)  # fmt: skip
def test_sizes_with_units_are_bytes(text: str, count: int) -> None:
    assert parse(click.Context(click.Command("x")), click.Option(["--size"]), text) == count


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "1e9", "1.2.3M", "0x10"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"--size .* is not a size; write it like 64K"):
        parse(click.Context(click.Command("x")), click.Option(["--size"]), text)
