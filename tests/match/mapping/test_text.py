"""Files of patterns, and what they are refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ait_llm.errors import FormatError
from ait_llm.match.mapping.patterns import as_text
from ait_llm.match.mapping.text import When, read_text

FILE = Path("mapping.txt")


def test_a_file_with_everything() -> None:
    mapping = read_text(
        FILE,
        """
        # golden -> mine
        allow missing
        model.layers.{i}.self_attn.{q,k,v}_proj -> h.{i}.attn.qkv[columns]  # joined
        - "root.model.norm:* -> ="
        when models - -> Decoder_Prefill
        a@{i}:output_0[transposed][rows 0:4] -> b@{i+1} ~0.4
        when steps 0, 2-3
        a -> b + c:output_1[shape 2x3]
        when any
        a\\#b -> c
        """,
    )
    assert mapping.allow_missing
    one, two, three, four, five = mapping.lines
    assert [as_text(each) for each in one.golden[0].ops] == [
        f"model.layers.{{i}}.self_attn.{each}_proj" for each in "qkv"
    ]
    assert one.mine[0].joins
    assert one.place == "mapping.txt:4"
    assert two.golden == two.mine
    assert as_text(two.golden[0].ops[0]) == "model.norm"
    assert three.when == When(models=("", "Decoder_Prefill"))
    assert three.confidence == 0.4
    assert [word.text for word in three.golden[0].words] == ["transposed", "rows 0:4"]
    assert four.when == When(steps=frozenset({0, 2, 3}))
    assert [as_text(term.ops[0]) for term in four.mine] == ["b", "c"]
    assert five.when == When()
    assert five.golden[0].ops == (("a#b",),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a b", "is not 'GOLDEN -> MINE'"),
        ("a -> b -> c", "is not 'GOLDEN -> MINE'"),
        ("a->b", "is not 'GOLDEN -> MINE'"),
        ("a -> b c", "'b c' is not the name of an operation"),
        ("a -> b[columns 0:4", "is not the name of an operation"),
        ("a -> ", "is not"),
        ("a -> b[columns]", "the other side has only one"),
        ("{a,b}[columns] -> c", "joins parts in several tensors"),
        ("{a,b} -> {c,d,e}", "has 3 operations on one side and 2 on the other"),
        ("a:{x,y} -> b:{x,y,z}", "has 3 tensors on one side and 2 on the other"),
        ("a.{i} -> b.{j}", r"has \{i\} on the left alone and \{j\} on the right alone"),
        ("a.* -> b", "stars that do not correspond"),
        ("a -> b + c.{i}", r"has \{i\} in a summand but not in the first one"),
        ("a -> b ~high", "'high' is no number from 0 to 1"),
        ("a -> b ~2", "'2' is no number from 0 to 1"),
        ("a -> b[colums]", "no relation"),
        ("a -> {b", "without its partner"),
        ("when it rains", "is none of 'when any'"),
        ("when steps 1-x", "is none of 'when any'"),
        ("when steps -3", "is no step"),
        ("when steps 0-999999999", "'0-999999999' has more than 100000 steps"),
        ("a.**.**.**.** -> =", r"has more than 3 '\*\*'"),
    ],
)
def test_a_wrong_line_is_named_with_the_next_step(line: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as refused:
        read_text(FILE, f"a -> b\n{line}\n")
    assert str(refused.value).startswith("mapping.txt:2: ")
    assert "Write it like: model.layers." in str(refused.value)


def test_an_empty_file_maps_nothing() -> None:
    with pytest.raises(FormatError, match="maps nothing"):
        read_text(FILE, "# nothing\n")


@pytest.mark.parametrize("page", ["matching.md", "matching.zh.md", "compare.md", "compare.zh.md"])
def test_the_examples_of_the_documentation_are_lines(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    blocks = [each.partition("```")[0] for each in text.split("```text\n")[1:]]
    examples = [block for block in blocks if " -> " in block]
    assert examples
    for block in examples:
        assert len(read_text(FILE, block).lines) >= 3
