"""``ait llm show`` lists a dump; the files are those of the official probe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ait_llm.cli.main import ait

OFFICIAL = Path(__file__).parents[1] / "data" / "atb-official" / "filter0"


def show(*words: str) -> Result:
    return CliRunner().invoke(ait, ["llm", "show", *words])


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """The official files in our layout, with the ledger of a process that was killed."""
    dump = tmp_path / "ait_dump"
    shutil.copytree(OFFICIAL / "atb_dump_data" / "data" / "0_4242", dump / "tensors" / "0_4242")
    ledger = dump / "ledger" / "0_4242.jsonl"
    ledger.parent.mkdir()
    ledger.write_text(
        '{"kind":"header","schema":1,"device":"0","pid":4242}\n'
        '{"kind":"op","op":"0_0","type":"RmsNormOperation","path":"0_4242/0/0_Decoder_layer/'
        '0_RmsNormOperation","phase":"after","step":0,"state":"saved","tensors":1,"bytes":256}\n'
    )
    return tmp_path


def test_operations_are_listed_in_execution_order_with_their_ids() -> None:
    result = show(str(OFFICIAL))
    rows = [line.split() for line in result.stdout.splitlines()[3:]]
    assert result.exit_code == 0
    assert rows[0] == ["0", "0", "Decoder_layer", "(graph)"]
    assert rows[1][:3] == ["0", "0_0", "RmsNormOperation"]
    assert [row[1] for row in rows[:6]] == ["0", "0_0", "0_1", "0_1_0", "0_1_1", "0_2"]


def test_tensors_are_listed_with_type_format_and_shape() -> None:
    output = " ".join(show(str(OFFICIAL), "--tensors").stdout.split())
    assert "after/outtensor0 (output) float16 nd [4,32]" in output


def test_json_is_one_object_per_line() -> None:
    rows = [json.loads(line) for line in show(str(OFFICIAL), "--json").stdout.splitlines()]
    assert {"process": "0_4242", "step": 0, "op_id": "0_0"}.items() <= rows[1].items()


def test_only_the_wanted_token_is_listed() -> None:
    assert "Decoder_layer" not in show(str(OFFICIAL), "--token", "7").stdout


def test_an_unfinished_dump_is_listed_and_said_to_be_incomplete(unfinished: Path) -> None:
    result = show(str(unfinished))
    assert result.exit_code == 3
    assert "did not finish its capture" in result.stderr
    assert "RmsNormOperation" in result.stdout
    assert show(str(unfinished), "--allow-skip").exit_code == 0


def test_what_is_no_dump_is_one_sentence(tmp_path: Path) -> None:
    result = show(str(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a dump" in result.stderr
