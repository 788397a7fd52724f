"""Files of a capture that was killed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from api_dumps import call, tensor, write_dump

from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions

LINEAR = "Functional.linear.0.forward"


def test_the_last_of_records_with_one_name_is_compared(tmp_path: Path) -> None:
    """A killed capture wrote a record again when it knew more of it."""
    whole = call([tensor([1, 2])], [tensor([1, 2])])
    golden = write_dump(tmp_path / "golden", {LINEAR: whole})
    mine = write_dump(tmp_path / "mine", {LINEAR: whole})
    file = mine if mine.is_file() else next(mine.rglob("dump.json"))
    text = file.read_text()
    head, key, rest = text.partition(f'"{LINEAR}"')
    early = json.dumps(call([tensor([7, 7])], [None]))
    file.write_text(f"{head}{key}: {early}, {key}{rest}")

    outcome = compare_api_dumps(
        mine, golden, tmp_path / "out", "1", ApiOptions(jobs=1), formats=("csv",)
    )
    with outcome.pairs[0].files[0].open(newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert [row["NPU Name"] for row in rows] == [f"{LINEAR}.input.0", f"{LINEAR}.output.0"]
    assert [float(row["Max diff"]) for row in rows] == [0, 0]
    assert outcome.exit_code() == 0
