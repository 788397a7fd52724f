"""Codes of errors: which one a message has, what ``ait llm explain`` says, and that they stay."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from error_catalogue import CODES, MEANINGS, main
from error_codes import LETTERS, Codes
from error_templates import AREAS, ErrorTemplate

from ait_llm.cli.main import ait
from ait_llm.errors import UnknownNameError
from ait_llm.language.codes import code_of, explained

_CODE = re.compile(r" \[(AIT-[A-Z]\d{3,})\]$")


def _template(text: str, area: str = "Tensor files", exit_code: int | None = 2) -> ErrorTemplate:
    return ErrorTemplate("FormatError", exit_code, area, "a.py", 1, (text,))


def _ran(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(ait, ["llm", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["show", "nothing.pth"],
        ["show", "--formt", "x"],
        ["dump"],
        ["show"],
        ["shw"],
        ["show", "a", "b", "c"],
        ["convert", "a.npy", "--to", "xyz"],
        ["compare", "-gp", "a"],
        ["compare", "-gp", "nothing", "-mp", "nothing", "--engine", "ray", "-j"],
        ["explain", "AIT-Z999"],
    ],
)
def test_an_error_ends_with_its_code_which_is_explained(words: list[str], tmp_path: Path) -> None:
    code, _, said = _ran(*words)
    found = _CODE.search(said.rstrip("\n"))
    assert code == 2
    assert found is not None, said
    explained_code, text, _ = _ran("explain", found[1])
    assert explained_code == 0
    assert text.startswith(f"{found[1]} is said by: ")
    assert "  cause    " in text
    assert "  cure     " in text


def test_what_a_message_says_to_do_is_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    _, _, said = _ran("opcheck", "-i", str(path), "-o", str(tmp_path))
    found = _CODE.search(said.rstrip("\n"))
    assert found is not None
    known = explained(found[1])
    assert known.cure == "Give the folder it lies in"
    assert known.cause.startswith("{path}: is a file")


def test_a_code_is_found_in_any_case_and_without_its_beginning() -> None:
    assert explained("f12") == explained("AIT-F012") == explained(" ait-F012 ")


def test_an_unknown_code_names_one_that_is_near() -> None:
    with pytest.raises(UnknownNameError, match="did you mean AIT-F"):
        explained("AIT-F01x")
    with pytest.raises(UnknownNameError, match="written like"):
        explained("?")


def test_explain_prints_json() -> None:
    _, text, _ = _ran("explain", "AIT-F001", "--json")
    found = json.loads(text)
    assert found["schema"] == "ait-llm.explain"
    assert (found["code"], found["exit_code"]) == ("AIT-F001", 2)
    assert found["cause"]
    assert found["cure"]


def test_explain_speaks_chinese() -> None:
    done = CliRunner().invoke(ait, ["--lang", "zh", "llm", "explain", "AIT-F012"])
    words = re.findall(r"[a-z]{3,}", re.sub(r"\{\w+\}|\w+Error", "", done.stdout))
    assert words == []


def test_a_message_of_another_class_has_no_code() -> None:
    message = "/a/b: is a file, a dump is a folder. Give the folder it lies in"
    code = code_of(["FormatError", "AitError"], message)
    assert code is not None
    assert explained(code).kind == "FormatError"
    assert code_of(["NoSuchError"], message) is None


def test_each_area_has_a_letter_of_its_own() -> None:
    assert set(AREAS.values()) <= set(LETTERS)
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_no_two_messages_have_one_code() -> None:
    content = json.loads(CODES.read_text("utf-8"))
    messages = [(kind, code, text) for kind, code, _, text in content["codes"].values()]
    assert len(set(messages)) == len(messages)
    assert all(int(code[5:]) < content["next"][code[4]] for code in content["codes"])


def test_the_codes_are_those_of_the_source() -> None:
    assert main(["--check"]) == 0


def test_a_message_in_other_words_keeps_its_code() -> None:
    first = Codes.of([_template("the file is too short to be read"), _template("is no number")])
    later = Codes.of(
        [_template("the file is too short to be a header"), _template("is no number")], first
    )
    assert later.records.keys() == first.records.keys()


def test_the_number_of_a_message_that_went_is_not_used_again() -> None:
    first = Codes.of([_template("the file is too short"), _template("is no number")])
    later = Codes.of([_template("is no number")], first)
    last = Codes.of([_template("is no number"), _template("something else entirely")], later)
    new = last.records.keys() - later.records.keys()
    assert new == {"AIT-F003"}


def test_a_message_of_two_areas_has_one_code() -> None:
    both = [_template("no such file"), _template("no such file", "Command line")]
    codes = Codes.of(both)
    assert {codes.name(each) for each in both} == {"AIT-U001"}


def test_clauses_have_no_code() -> None:
    assert Codes.of([_template("a clause", exit_code=None)]).records == {}


def test_codes_are_read_as_they_were_written(tmp_path: Path) -> None:
    codes = Codes.of([_template('with "quotes"'), _template("é")])
    path = tmp_path / "codes.json"
    path.write_text(codes.text(MEANINGS), encoding="utf-8")
    again = Codes.read(path)
    assert (again.records, again.next) == (codes.records, codes.next)
