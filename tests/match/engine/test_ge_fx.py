"""Tensors of the graph engine are found among those of the FX nodes, by identity."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from compiled_dumps import CompiledRun, graph_text, request
from ge_dump_files import FLOAT, FRACTAL_NZ, Stored, nz, of, write_file

from ait_llm.compare import compare
from ait_llm.core import DType
from ait_llm.core.comparison import Comparison, Report, Verdict
from ait_llm.dumps import open_dump
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Unmatched
from ait_llm.match.pairing import pair_runs
from ait_llm.match.saved_mapping import write_mapping
from ait_llm.match.scenario import find_scenario

Items = list["Match | Unmatched"]


def _items(golden: Path, mine: Path) -> Items:
    pairing = pair_runs(find_scenario(golden, mine))
    assert not pairing.problems
    return [
        item
        for pair in pairing.pairs
        for item in match_runs(pair.golden, pair.mine, MatchOptions())
    ]


def _of(report: Report, title: str) -> Comparison:
    [found] = [item for item in report.comparisons if item.record.title == title]
    return found


@pytest.fixture(scope="session")
def found(recorded_decoder: dict[str, Path]) -> dict[str, Items]:
    return {
        name: _items(recorded_decoder["fx"], recorded_decoder[name])
        for name in ("fused", "unfused")
    }


@pytest.mark.parametrize("name", ["fused", "unfused"])
def test_every_recorded_output_is_exactly_the_fx_tensor_of_the_truth(
    recorded_decoder: dict[str, Path], found: dict[str, Items], name: str
) -> None:
    answers = {
        (item.mine.record.path, item.mine.record.index): item
        for item in found[name]
        if isinstance(item, Match) and item.mine.record.role == "out" and not item.is_self_check
    }
    truth = json.loads((recorded_decoder[name] / "truth.json").read_text())["files"]
    paths = {path.name: str(path) for path in recorded_decoder[name].rglob("*.*.*.*.17*")}
    named = 0
    for each in truth:
        for index, fx in enumerate(each["output_fx"]):
            item = answers.get((paths[each["file"]], index))
            if fx is None:
                continue
            named += 1
            assert item is not None, fx
            golden = item.golden.record
            role = "in" if item.relation == "view input" else "out"  # a view took the name over
            assert (golden.op, golden.role) == (fx.partition("-")[0], role)
            if role == "out":
                assert golden.index == int(fx.rpartition(".")[2])
    assert named > 500


@pytest.mark.parametrize("name", ["fused", "unfused"])
def test_outputs_that_the_graph_does_not_name_are_found_through_what_made_them(
    recorded_decoder: dict[str, Path], found: dict[str, Items], name: str
) -> None:
    truth = json.loads((recorded_decoder[name] / "truth.json").read_text())["files"]
    nameless = {each["file"] for each in truth if each["output_fx"] == [None]}
    relations = Counter(
        (item.mine.record.op_type, item.relation)
        for item in found[name]
        if isinstance(item, Match)
        and item.mine.record.role == "out"
        and Path(item.mine.record.path).name in nameless
    )
    if name == "unfused":
        assert relations.pop(("Mul", "via cast")) == 100
        assert relations.pop(("Muls", "via cast")) == 10
    transposes = sum(count for (kind, _), count in relations.items() if kind == "Transpose")
    assert transposes == sum(file.startswith("Transpose.") for file in nameless)
    assert relations["Cast", "self-check"] == 20


def test_nothing_is_dropped(recorded_decoder: dict[str, Path], found: dict[str, Items]) -> None:
    mentioned: Counter[tuple[str, str]] = Counter()
    for item in found["fused"]:
        records = [item.mine.record, item.golden.record] if isinstance(item, Match) else []
        records += [record for _, record in item.uses] if isinstance(item, Match) else []
        records += [item.record] if isinstance(item, Unmatched) else []
        mentioned.update({(record.path, record.name) for record in records})
    for side in ("fx", "fused"):
        for operation in open_dump(recorded_decoder[side]).operations():
            for tensor in operation.tensors:
                assert mentioned[str(tensor.path), tensor.name], (operation.name, tensor.name)


def test_what_has_no_partner_says_why(found: dict[str, Items]) -> None:
    reasons = Counter(
        item.reason for item in found["fused"] if isinstance(item, Unmatched) if item.side == "mine"
    )
    assert reasons == {
        "is a constant of the graph": 78,
        "the graph names no FX tensor for this Pack": 20,
        "the graph names no FX tensor for this Cast": 20,
    }


@pytest.fixture
def pair(golden: CompiledRun, mine: CompiledRun) -> tuple[CompiledRun, CompiledRun]:
    golden.fx(request())
    mine.graph()
    return golden, mine


def _links(report: Report) -> dict[str, tuple[str, str]]:
    """My tensor to the golden one and the relation."""
    return {
        item.mine.title: (item.golden.title, item.relation)
        for item in report.comparisons
        if item.mine is not None and item.golden is not None
    }


def test_the_operators_of_a_fused_graph(pair: tuple[CompiledRun, CompiledRun]) -> None:
    golden, mine = pair
    mine.ge(request())
    report = compare(golden.root, mine.root)
    assert _links(report) == {
        "Cast intensor0": ("_to_copy intensor0", "graph input"),
        "Cast outtensor0": ("_to_copy outtensor0", "exact"),
        "MulCast_1 intensor0": ("_to_copy outtensor0", "exact"),
        "MulCast_1 intensor1": ("_to_copy outtensor0", "exact"),
        "MulCast_1 outtensor0": ("mul_5 outtensor0", "fused"),
        "TopKV2 intensor0": ("mul_5 outtensor0", "exact"),
        "TopKV2 intensor1": ("topk intensor1", "constant"),
        "TopKV2 outtensor0": ("topk outtensor0", "exact"),
        "TopKV2 outtensor1": ("topk outtensor1", "via cast"),
        "Cast_2 intensor0": ("topk outtensor1", "via cast"),
        "Cast_2 outtensor0": ("topk outtensor1", "exact"),
    }
    assert report.exit_code() == 0


def test_a_whole_number_of_another_value_is_no_counterpart(
    pair: tuple[CompiledRun, CompiledRun],
) -> None:
    golden, mine = pair
    mine.ge(request(), changed={"k": np.int64([4])})
    report = compare(golden.root, mine.root)
    assert _of(report, "TopKV2 intensor1").reason == "is a constant of the graph"


@pytest.mark.parametrize(
    ("constant", "verdict"),
    [(1e-5, Verdict.FAIL), (1e-6, Verdict.PASS), (1e6, Verdict.SKIPPED), (-1e-6, Verdict.SKIPPED)],
)
def test_the_only_real_number_of_operator_and_node(
    pair: tuple[CompiledRun, CompiledRun], constant: float, verdict: Verdict
) -> None:
    golden, mine = pair
    [file] = golden.root.rglob("topk-*.INPUT.1.*")
    np.save(file, np.float64(1e-6))
    mine.ge(request(), changed={"k": np.float32([constant])})
    report = compare(golden.root, mine.root)
    assert _of(report, "TopKV2 intensor1").verdict is verdict


def test_a_product_without_a_name_is_found_by_its_cast(
    pair: tuple[CompiledRun, CompiledRun],
) -> None:
    golden, mine = pair
    mine.ge(request(), fused=False)
    links = _links(compare(golden.root, mine.root))
    assert links["Mul outtensor0"] == ("mul_5 outtensor0", "via cast")
    assert links["Cast_1 intensor0"] == ("mul_5 outtensor0", "via cast")


def test_a_narrowing_cast_is_judged_by_the_narrow_type(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    for run in (golden, mine):
        run.narrow = ml_dtypes.bfloat16
    golden.fx(request())  # whose files hold bf16 as float32
    mine.graph()
    mine.ge(request(), fused=False)
    product = _of(compare(golden.root, mine.root), "Mul outtensor0")
    assert product.mine is not None
    assert product.golden is not None
    assert product.mine.dtype is product.golden.dtype is DType.FLOAT32
    assert 7.5e-5 < product.values["relative_euclidean_distance"] < 4e-3
    assert product.verdict is Verdict.PASS
    assert product.tolerance["relative_euclidean_distance"] == 0.032


def test_a_widened_value_carries_the_rounding_that_it_went_through(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    golden.fx(request())
    mine.graph()
    # x is another rounding of the same numbers, as the result of an earlier operator would be
    moved = request() + np.float16(2**-11)
    mine.ge(moved)
    report = compare(golden.root, mine.root)
    product = _of(report, "MulCast_1 outtensor0")
    assert product.tolerance["relative_euclidean_distance"] == 4e-3
    assert product.verdict is Verdict.PASS


def test_a_graph_input_of_other_values_is_found_by_the_node_that_reads_it(
    pair: tuple[CompiledRun, CompiledRun],
) -> None:
    golden, mine = pair
    mine.ge(request(seed=1))
    report = compare(golden.root, mine.root)
    item = _of(report, "Cast intensor0")
    assert item.golden is not None
    assert (item.golden.title, item.verdict) == ("_to_copy intensor0", Verdict.FAIL)
    [origin] = report.origins
    assert "inputs differ already" in origin.evidence


def test_an_inserted_operator_is_held_against_its_own_input(
    pair: tuple[CompiledRun, CompiledRun],
) -> None:
    golden, mine = pair
    folder = mine.ge(request())
    array = mine.values(request())["wide"]
    stored = nz(array, 8)
    tensor = Stored(stored.tobytes(), FLOAT, stored.shape, FRACTAL_NZ, array.shape)
    name = "TransData.trans_TransData_14.9.6.1732533825000009"
    write_file(folder / name, [of(array, FLOAT)], [tensor])
    report = compare(golden.root, mine.root)
    item = _of(report, "trans_TransData_14 outtensor0")
    assert (item.relation, item.verdict) == ("self-check", Verdict.PASS)
    assert item.golden is not None
    assert item.golden.title == "trans_TransData_14 intensor0"
    wrong = array.copy()
    wrong[0, 0] += 1
    write_file(folder / name, [of(wrong, FLOAT)], [tensor])
    report = compare(golden.root, mine.root)
    assert [origin.op for origin in report.origins] == ["trans_TransData_14"]


def test_nan_at_one_place_leaves_the_metrics_of_the_others(
    pair: tuple[CompiledRun, CompiledRun],
) -> None:
    golden, mine = pair
    cast = mine.values(request())["cast"].copy()
    cast[1, 2] = np.nan
    mine.ge(request(), changed={"cast": cast})
    item = _of(compare(golden.root, mine.root), "MulCast_1 outtensor0")
    assert item.verdict is Verdict.FAIL
    assert item.first_bad == (1, 2)
    assert item.values["cosine_similarity"] == pytest.approx(1)


def test_a_dump_without_graph_files_says_what_is_missing(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    golden.fx(request())
    mine.ge(request())
    report = compare(golden.root, mine.root)
    assert report.exit_code() == 3
    assert "no dynamo_original_graph file" in report.problems[0].text


def test_a_graph_that_was_printed_as_code_is_told_with_its_name(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    golden.fx(request())
    mine.ge(request())
    print_of_it = mine.graph().rename(mine.root / "dynamo_original_graph_20241125192345000001.py")
    text = compare(golden.root, mine.root).problems[0].text
    assert "no dynamo_original_graph file" not in text
    assert print_of_it.name in text
    assert "set config.debug.graph_dump.type to txt" in text


def test_a_graph_file_of_another_run_is_told_with_its_share(
    golden: CompiledRun, mine: CompiledRun
) -> None:
    golden.fx(request())
    text = graph_text().replace('"Cast"', '"Cast_7"').replace('"TopKV2"', '"TopKV2_3"')
    mine.graph(text=text)
    mine.ge(request())
    problems = [problem.text for problem in compare(golden.root, mine.root).problems]
    assert any("explains 67% of the operators" in text for text in problems)


def test_what_the_device_reports_of_overflows_is_no_operator(
    pair: tuple[CompiledRun, CompiledRun],
) -> None:
    golden, mine = pair
    folder = mine.ge(request())
    name = "Opdebug.Node_OpDebug.9.6.1732533825000009"
    write_file(folder / name, [], [of(np.float32([1]), FLOAT)])
    report = compare(golden.root, mine.root)
    reason = _of(report, "Node_OpDebug outtensor0").reason
    assert reason == "is what the device reports of overflows, no operator of the model"
    assert not report.problems


def test_a_fault_of_one_rank_is_told_with_its_rank(golden: CompiledRun, mine: CompiledRun) -> None:
    for rank in (0, 1):
        golden.fx(request(rank), rank=rank)
        cast = mine.values(request(rank))["cast"] * np.float32(1 + 0.08 * rank)
        mine.ge(request(rank), rank=rank, device=rank, changed={"cast": cast})
        mine.graph(rank=rank)
    report = compare(golden.root, mine.root)
    [origin] = report.origins
    assert (origin.op, origin.device) == ("MulCast_1", 1)
    assert origin.index is not None
    assert report.comparisons[origin.index].record.rank == 1
    assert {item.record.rank for item in report.with_verdict(Verdict.PASS)} == {0, 1}


def test_a_damaged_file_costs_its_own_operator_only(
    pair: tuple[CompiledRun, CompiledRun],
) -> None:
    golden, mine = pair
    folder = mine.ge(request())
    [file] = folder.glob("AutomaticBufferFusionOp.*")
    file.write_bytes(file.read_bytes()[:40])
    report = compare(golden.root, mine.root)
    [error] = report.with_verdict(Verdict.ERROR)
    assert error.record.title == "MulCast_1 outtensor0"
    assert report.counts[Verdict.PASS] == 8
    assert not report.counts[Verdict.FAIL]


def test_a_damaged_graph_file_is_told(pair: tuple[CompiledRun, CompiledRun]) -> None:
    golden, mine = pair
    mine.ge(request())
    mine.graph(text='name: "graph_1" op { name: "Cast" ')
    report = compare(golden.root, mine.root)
    assert "a graph cannot be read" in report.problems[0].text
    assert report.exit_code() == 3


@pytest.mark.parametrize(("kept", "count"), [("in", 6), ("out", 5)])
def test_dumps_of_inputs_or_of_outputs_only(
    pair: tuple[CompiledRun, CompiledRun], kept: str, count: int
) -> None:
    golden, mine = pair
    mine.ge(request(), role=kept)
    report = compare(golden.root, mine.root)
    assert report.counts[Verdict.PASS] == count
    assert not report.counts[Verdict.FAIL] + report.counts[Verdict.ERROR]


def test_statistics_in_place_of_values(pair: tuple[CompiledRun, CompiledRun]) -> None:
    golden, mine = pair
    folder = mine.ge(request())
    cast = mine.values(request())["cast"].astype(np.float64) * 1.5
    for file in folder.iterdir():
        if not file.name.startswith("AutomaticBufferFusionOp"):
            file.unlink()
    [file] = folder.iterdir()
    numbers = f"{cast.max()},{cast.min()},{cast.mean()},{cast.size},0,0,0"
    file.with_name(f"{file.name}.csv").write_text(
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
        "Nan Count,Negative Inf Count,Positive Inf Count\n"
        f"Output,0,128,DT_FLOAT,ND,4x8,{numbers}\n"
    )
    file.unlink()
    item = _of(compare(golden.root, mine.root), "MulCast_1 outtensor0")
    assert item.verdict is Verdict.FAIL
    assert item.values["stat_scaled_error"] == pytest.approx(0.5)


def test_a_saved_mapping_serves_again(
    pair: tuple[CompiledRun, CompiledRun], tmp_path: Path
) -> None:
    golden, mine = pair
    mine.ge(request())
    saved = tmp_path / "mapping.json"
    first = compare(golden.root, mine.root, on_matches=lambda found: write_mapping(saved, found))
    second = compare(golden.root, mine.root, mapping=saved)
    assert _links(first).keys() == _links(second).keys()
    assert second.counts[Verdict.PASS] == first.counts[Verdict.PASS]
    assert {item.rule for item in second.with_verdict(Verdict.PASS)} == {"saved_mapping"}
    lines = saved.read_text().splitlines()
    assert "mul_5 -> MulCast_1" in lines
    assert not [line for line in lines if line.startswith("when")]  # there is one graph
    for graph, rules in (("graph_1", {"saved_mapping"}), ("graph_2", {"programs"})):
        saved.write_text("\n".join([f"when models - -> {graph}", *lines]))
        again = compare(golden.root, mine.root, mapping=saved)
        assert {item.rule for item in again.with_verdict(Verdict.PASS)} == rules


def test_roles_may_be_swapped(golden: CompiledRun, mine: CompiledRun) -> None:
    golden.graph()
    golden.ge(request())
    folder = mine.fx(request())
    [file] = folder.glob("mul_5-*.OUTPUT.0.*")
    np.save(file, np.load(file) * np.float32(1.08))
    report = compare(golden.root, mine.root)
    assert report.scenario == "ge-fx"
    assert [(origin.op, origin.golden_op) for origin in report.origins] == [("mul_5", "MulCast_1")]
