"""Golden records that mine reaches later, or never, are read again and not kept."""

from __future__ import annotations

from collections.abc import Iterator

from api_dumps import call, tensor

from ait_llm.compare.api.item import Item, items_of
from ait_llm.compare.api.matching import match_by_name, match_by_table
from ait_llm.compare.api.reading import Record

OUTPUTS = {"Torch.split.0.forward": 3}


class File:
    """Records of some names, one tensor each unless ``outputs`` says otherwise."""

    def __init__(self, names: list[str], outputs: dict[str, int] | None = None) -> None:
        self.names = names
        self.outputs = outputs or {}
        self.asked: list[str] = []

    def __iter__(self) -> Iterator[Record]:
        return iter(
            [Record(name, self._items(name), place) for place, name in enumerate(self.names)]
        )

    def again(self, name: str, place: int) -> list[Item]:
        """Rows of a record, which are noted."""
        assert self.names[place] == name
        self.asked.append(name)
        return self._items(name)

    def _items(self, name: str) -> list[Item]:
        return items_of(name, call([], [tensor()] * self.outputs.get(name, 1)))


def left_of(found: list[list[tuple[Item | None, Item | None]]]) -> list[str]:
    return [
        golden.name
        for rows in found
        for mine, golden in rows
        if mine is None and golden is not None
    ]


def test_records_in_another_order_are_read_again_once() -> None:
    names = [f"Torch.exp.{number}.forward" for number in range(4)]
    golden = File(names)
    found = list(match_by_name(File(names[::-1]), golden, golden.again))
    assert all(mine is not None and other is not None for ((mine, other),) in found)
    assert golden.asked == names[2::-1]


def test_what_mine_does_not_have_comes_at_the_end_in_the_order_of_golden() -> None:
    names = [f"Torch.exp.{number}.forward" for number in range(5)]
    golden = File(names)
    found = list(match_by_name(File(names[3:4]), golden, golden.again))
    assert golden.asked == names[:3]
    assert left_of(found) == [f"{name}.output.0" for name in [*names[:3], names[4]]]


def test_backward_calls_that_were_passed_are_read_again_by_their_own_names() -> None:
    names = [f"Torch.exp.{number}.backward" for number in (7, 5)]
    golden = File([*names, "Torch.add.0.forward"])
    mine = File(["Torch.add.0.forward", "Torch.exp.0.backward", "Torch.exp.1.backward"])
    found = list(match_by_name(mine, golden, golden.again))
    pairs = [(mine.record, other.record) for ((mine, other),) in found if mine and other]
    assert pairs[1:] == [("Torch.exp.0.backward", names[0]), ("Torch.exp.1.backward", names[1])]
    assert golden.asked == names


def test_rows_that_golden_has_more_come_after_all_of_mine() -> None:
    names = ["Torch.split.0.forward", "Torch.exp.0.forward"]
    golden = File(names, OUTPUTS)
    found = list(match_by_name(File(names), golden, golden.again))
    assert [len(rows) for rows in found] == [1, 1, 2]
    assert left_of(found) == [f"{names[0]}.output.{number}" for number in (1, 2)]
    assert golden.asked == names[:1]


def test_a_row_of_golden_answers_as_often_as_a_table_names_it() -> None:
    mine = File([f"Torch.exp.{number}.forward" for number in range(3)])
    golden = File(["Torch.log.0.forward"])
    answer = "Torch.log.0.forward.output.0"
    table = {f"Torch.exp.{number}.forward.output.0": answer for number in range(3)}
    found = [row for rows in match_by_table(mine, golden, table) for row in rows]
    assert [each.name for _, each in found if each is not None] == [answer] * 3
    assert None not in [each for each, _ in found]
