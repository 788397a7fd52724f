"""Published schemas of all JSON outputs; ``tests/conftest.py`` holds every output to its own."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from api_dumps import call, tensor, write_dump
from click.testing import CliRunner
from graph_dumps import GraphDump
from json_outputs import check
from odd_dumps import half, write_operation
from report_builder import decoder_report, not_finite, problems, report, unreadable

from ait_llm.bisect import BisectResult, RunRecord
from ait_llm.bisect.repeating import Unrepeated
from ait_llm.cli.main import ait
from ait_llm.core.comparison import Origin
from ait_llm.dump.summary import DumpSummary
from ait_llm.report.jsonl import lines
from ait_llm.schemas import VERSIONS, identity, read_schema

FOLDER = Path(__file__).parents[2] / "ait_llm" / "schemas"
CLI = Path(__file__).parents[2] / "cli"


def run(*words: object) -> str:
    result = CliRunner().invoke(ait, ["llm", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_there_is_a_schema_for_each_name_and_none_besides() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(VERSIONS)


@pytest.mark.parametrize("name", VERSIONS)
def test_a_schema_is_one_and_says_what_it_is(name: str) -> None:
    schema = read_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"ait-llm.{name}/{VERSIONS[name]}"
    assert schema["title"].endswith(".")
    if "properties" in schema and isinstance(schema["properties"]["schema"].get("const"), str):
        constants = {key: schema["properties"][key]["const"] for key in ("schema", "version")}
        assert constants == identity(name)
        assert {"schema", "version"} <= set(schema["required"])


WITH_FILE = ("runs_folder.py",)
"""What writes into a file, too, what a command prints."""


def test_every_command_prints_json_through_the_one_function_that_names_it() -> None:
    named = set()
    for path in CLI.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            if function in ("emit", "json_line") and isinstance(node.args[0], ast.Constant):
                named.add(node.args[0].value)
            if path.name not in ("machine.py", "schema.py", *WITH_FILE):
                assert function != "json.dumps", path
    assert named <= set(VERSIONS)
    files = {"compare", "errcheck-report", "opcheck-journal", "opcheck-report"}
    assert set(VERSIONS) - named - files == {"dump", "golden"}  # of results.finish


def test_every_command_with_a_result_has_json() -> None:
    group = ait.get_command(None, "llm")  # type: ignore[arg-type]  # no context is needed
    without = [
        name
        for name in group.list_commands(None)  # type: ignore[union-attr,arg-type]  # likewise
        if "--json" not in [o for p in group.get_command(None, name).params for o in p.opts]  # type: ignore[union-attr,arg-type]
    ]
    assert without == ["mcp", "schema"]


def test_all_kinds_of_lines_of_a_jsonl_report_follow_the_schema() -> None:
    kinds = set()
    for value in (
        decoder_report(),
        report(unreadable(), not_finite(), problems=problems(), partial=True),
    ):
        for line in lines(value):
            data = json.loads(line)
            kinds.add(data["type"])
            check("compare", data)
    assert {"header", "comparison", "problem", "origin", "total"} <= kinds


def test_a_comparison_and_what_it_keeps(tmp_path: Path) -> None:
    for name, end in (("golden", 2.0), ("mine", 5.0)):
        np.save(tmp_path / f"{name}.npy", np.array([1.0, end], np.float32))
    words = ("-gp", tmp_path / "golden.npy", "-mp", tmp_path / "mine.npy", "-o", tmp_path / "out")
    told = json.loads(run("compare", *words, "--format", "jsonl", "--json"))
    check("compare-result", told)
    (path,) = (tmp_path / "out").glob("*.jsonl")
    for line in path.read_text().splitlines():
        check("compare", json.loads(line))
    told = json.loads(run("compare", *words, "--baseline", path, "--json"))
    assert told["baseline"]["counts"]["known"] == 1


def test_calls_of_api_level_dumps(tmp_path: Path) -> None:
    for side, end in (("golden", 2.0), ("mine", 5.0)):
        record = call([tensor([1.0, 2.0])], [tensor([1.0, end])])
        write_dump(tmp_path / side, {"Functional.relu.0.forward": record})
    words = ("-gp", tmp_path / "golden", "-mp", tmp_path / "mine", "-o", tmp_path / "out")
    for more in ((), ("-da",)):
        check("compare-api", json.loads(run("compare", *words, "--json", *more)))


def test_errcheck_and_its_file(tmp_path: Path) -> None:
    odd = half(2, 3, at_1_2=np.nan)
    write_operation(tmp_path / "dump", "0_RmsNormOperation", [half(2, 3)], [odd])
    told = run("errcheck", "--dump", tmp_path / "dump", "-o", tmp_path / "out", "--json")
    check("errcheck", json.loads(told))
    report_file = tmp_path / "out" / "ait_overflow_res.json"
    check("errcheck-report", json.loads(report_file.read_text()))


def test_replay_show_convert_and_export(tmp_path: Path) -> None:
    dump = GraphDump(tmp_path / "ait_dump", linear="SecretOperation").write()
    check("replay", json.loads(run("replay", "--dump", dump, "-o", tmp_path / "out", "--json")))
    for line in run("show", dump, "--tensors", "--json").splitlines():
        check("show", json.loads(line))
    passes = run("show", dump, "--program", "--json").splitlines()
    check("show-pass", json.loads(passes[0]))
    for line in passes[1:]:
        check("show-operation", json.loads(line))
    told = run("convert", dump, "--to", "npy", "-o", tmp_path / "npy", "--json")
    check("convert", json.loads(told))
    for kind in ("npz", "trace"):
        told = run("export", dump, "--to", kind, "-o", tmp_path / f"out.{kind}", "--json")
        check("export", json.loads(told))


def test_results_that_take_long_to_make() -> None:
    origin = Origin("Linear_1", "1", "Linear", 0, index=3, inherited=0.1, introduced=0.2)
    runs = [RunRecord(1, "mine", "all", "-er 0,1", None, written=5, exit_code=0)]
    unrepeated = Unrepeated("Linear_1", "1", "Linear", 0, "outtensor0", False, "by 1")
    for result in (
        BisectResult("found", Path("/x"), runs, origin=origin, limit=10, full=100),
        BisectResult("unrepeatable", Path("/x"), runs, unrepeated=unrepeated, side="mine"),
        BisectResult("failed", Path("/x"), [], side="golden", program_code=9),
    ):
        check("bisect", json.loads(json.dumps(result.as_dict())))
    empty = DumpSummary(0, Path("/x/ait_dump"))
    check("dump", {**identity("dump"), **json.loads(json.dumps(empty.as_dict())), "next": None})


def test_a_schema_refuses_what_is_not_the_output() -> None:
    data = {**identity("api-precision-compare"), "exit_code": 0, "counts": {}, "errors": []}
    with pytest.raises(jsonschema.ValidationError, match="'files' is a required property"):
        check("api-precision-compare", data)
    with pytest.raises(jsonschema.ValidationError, match="was unexpected"):
        check("api-precision-compare", {**data, "files": [], "more": 1})


def test_the_command_lists_schemas_and_prints_one() -> None:
    listed = run("schema").splitlines()
    assert [line.split()[0] for line in listed] == list(VERSIONS)
    assert json.loads(run("schema", "compare-result")) == read_schema("compare-result")
    refused = CliRunner().invoke(ait, ["llm", "schema", "compare-resul"])
    assert refused.exit_code == 2
    assert "did you mean 'compare-result'?" in refused.stderr
