"""Golden records that mine reaches later, or never, are decoded again and not kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from api_dumps import call, tensor

from ait_llm.compare.api.matching import Located, Record, match_by_name


def records(names: list[str]) -> list[Record]:
    return [(name, call([tensor()], [])) for name in names]


def located(given: list[Record], asked: list[str]) -> Iterator[Located]:
    """Records that note when they are decoded again."""

    def again(name: str, content: Any) -> Any:
        asked.append(name)
        return content

    return iter((name, content, partial(again, name, content)) for name, content in given)


def test_records_in_another_order_are_decoded_again_once() -> None:
    names = [f"Torch.exp.{number}.forward" for number in range(4)]
    asked: list[str] = []
    found = list(match_by_name(records(names[::-1]), located(records(names), asked)))
    assert all(mine is not None and golden is not None for ((mine, golden),) in found)
    assert asked == names[2::-1]


def test_what_mine_does_not_have_comes_at_the_end_in_the_order_of_golden() -> None:
    names = [f"Torch.exp.{number}.forward" for number in range(5)]
    asked: list[str] = []
    found = list(match_by_name(records(names[3:4]), located(records(names), asked)))
    assert asked == names[:3]
    left = [golden.record for ((mine, golden),) in found if mine is None and golden is not None]
    assert left == [*names[:3], names[4]]
