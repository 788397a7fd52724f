"""Passes of a dump, and which of them belong together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_builder import HEADER, SEAL, DumpBuilder, entry

from ait_llm.dumps import open_dump
from ait_llm.errors import UsageError
from ait_llm.match.pairing import Pairing, pair_runs, parse_steps
from ait_llm.match.scenario import find_scenario
from ait_llm.program.one_pass import Pass
from ait_llm.program.passes import passes_of

PREFILL = ["0_WordEmbedding", "1_Prefill_layer", "2_Prefill_layer", "3_LmHead"]
DECODE = ["4_WordEmbedding", "5_Decoder_layer", "6_Decoder_layer", "7_LmHead"]


def _passes(root: Path) -> list[Pass]:
    dump = open_dump(root)
    return [run for process in dump.processes for run in passes_of(dump, process)]


def _shape(runs: list[Pass]) -> list[tuple[int, list[str]]]:
    return [(run.step, [op.name for op in run.operations]) for run in runs]


def _expected(steps: dict[int, list[str]]) -> list[tuple[int, list[str]]]:
    return [
        (step, ["_".join(reversed(name.split("_", 1))) for name in names])
        for step, names in steps.items()
    ]


def test_prefill_and_decode_of_one_execution_count_are_two_passes(builder: DumpBuilder) -> None:
    for name in PREFILL:
        builder.operation(name)
    for step in (0, 1, 2):
        for name in DECODE:
            builder.operation(name, step=step)
    steps = {0: PREFILL, 1: DECODE, 2: DECODE, 3: DECODE}
    assert _shape(_passes(builder.root)) == _expected(steps)


def test_without_a_second_decode_step_the_repeated_row_of_types_shows_two_models(
    builder: DumpBuilder,
) -> None:
    for name in [*PREFILL, *DECODE]:
        builder.operation(name)
    assert _shape(_passes(builder.root)) == _expected({0: PREFILL, 1: DECODE})


def test_layers_of_one_type_are_one_pass(builder: DumpBuilder) -> None:
    names = [f"{place}_Layer" for place in range(4)]
    for name in names:
        builder.operation(name)
    assert _shape(_passes(builder.root)) == _expected({0: names})


def test_the_models_that_the_run_reported_decide(builder: DumpBuilder) -> None:
    names = ["0_A", "1_B", "2_A", "3_B"]
    for name in names:
        builder.operation(name)
    for model, part in (("Prefill", ("A_0", "B_1", "A_2")), ("Decode", ("B_3",))):
        nodes = [{"opName": name, "opType": name.split("_")[0]} for name in part]
        path = builder.root / "model" / "4242" / f"{model}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"modelName": model, "nodes": nodes}))
    runs = _passes(builder.root)
    assert _shape(runs) == _expected({0: names[:3], 1: names[3:]})
    assert [run.model.name for run in runs if run.model is not None] == ["Prefill", "Decode"]


def test_models_that_share_operations_are_told_from_what_ran_with_them(
    builder: DumpBuilder,
) -> None:
    ran = ["0_Embed", "1_Prefill", "2_Head", *(["0_Embed", "3_Decode", "2_Head"] * 2)]
    counts: dict[str, int] = {}
    lines = []
    for name in ran:
        step = counts[name] = counts.get(name, -1) + 1
        builder.operation(name, step=step)
        lines.append(entry(f"0_4242/{step}/{name}"))
    builder.ledger(HEADER, *lines, SEAL)
    parts = {"P": ("Embed_0", "Prefill_1", "Head_2"), "D": ("Embed_0", "Decode_3", "Head_2")}
    for model, part in parts.items():
        nodes = [{"opName": name, "opType": name.split("_")[0]} for name in part]
        path = builder.root / "model" / "4242" / f"{model}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"modelName": model, "nodes": nodes}))
    runs = _passes(builder.root)
    assert [run.step for run in runs] == [0, 1, 2]
    assert [run.model.name for run in runs if run.model is not None] == ["P", "D", "D"]
    assert [{op.name for op in run.operations} for run in runs] == [
        set(parts["P"]),
        set(parts["D"]),
        set(parts["D"]),
    ]


def test_the_ledger_orders_passes_of_several_prompts(builder: DumpBuilder) -> None:
    prefill, decode = PREFILL[:2], DECODE[:2]
    row = [(prefill, 0), (decode, 0), (decode, 1), (prefill, 1), (decode, 2)]
    lines = []
    for names, step in row:
        for name in names:
            builder.operation(name, step=step)
            lines.append(entry(f"0_4242/{step}/{name}"))
    builder.ledger(HEADER, *lines, SEAL)
    steps = {number: names for number, (names, _) in enumerate(row)}
    assert _shape(_passes(builder.root)) == _expected(steps)


def test_a_decode_folder_alone_keeps_its_number_in_the_process(builder: DumpBuilder) -> None:
    lines = []
    for names, step in ((PREFILL, 0), (DECODE, 0), (DECODE, 1)):
        for name in names:
            builder.operation(name, step=step)
            lines.append(entry(f"0_4242/{step}/{name}"))
    builder.ledger(HEADER, *lines, SEAL)
    runs = _passes(builder.root / "tensors" / "0_4242" / "1")
    assert _shape(runs) == _expected({2: DECODE})


def test_real_passes_are_prefill_and_two_decode_steps(captures: dict[str, Path]) -> None:
    runs = _passes(captures["one"])
    assert [(run.step, run.model.name if run.model else "") for run in runs] == [
        (0, "DecoderModel_Prefill"),
        (1, "DecoderModel_Decoder"),
        (2, "DecoderModel_Decoder"),
    ]
    assert [run.first_order for run in runs] == [0, 51, 101]


def _torch_dump(root: Path, tokens: dict[int, int], process: str = "cpu_7") -> Path:
    """One module whose hidden state has as many tokens as given for each step."""
    for step, count in tokens.items():
        folder = root / "ait_dump" / "torch_tensors" / process / str(step) / "root.fc"
        folder.mkdir(parents=True)
        torch.save(torch.ones(1, count, 4), folder / "output.pth")
    return root


def _pairs(pairing: Pairing) -> list[tuple[int, int]]:
    return [(pair.golden.step, pair.mine.step) for pair in pairing.pairs]


def _pairing(golden: Path, mine: Path, steps: dict[int, int] | None = None) -> Pairing:
    return pair_runs(find_scenario(golden, mine), steps)


def test_torch_steps_pair_with_prefill_and_decode_passes(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    golden = _torch_dump(tmp_path, {0: 7, 1: 1, 2: 1, 3: 1})
    pairing = _pairing(golden, captures["one"])
    assert _pairs(pairing) == [(0, 0), (1, 1), (2, 2)]
    assert [(problem.side, problem.text, problem.decides) for problem in pairing.problems] == [
        ("golden", "step 3 (root.fc) has no counterpart on my side", True)
    ]


def test_a_warm_up_is_recognised_by_its_tokens(captures: dict[str, Path], tmp_path: Path) -> None:
    pairing = _pairing(_torch_dump(tmp_path, {0: 7, 1: 1, 2: 1}), captures["warm"])
    assert _pairs(pairing) == [(0, 2), (1, 3), (2, 4)]
    assert [problem.decides for problem in pairing.problems] == [False, False]
    assert "my run began with 300 tokens, golden's with 7" in pairing.pairs[0].reason


def test_a_larger_batch_is_no_warm_up(tmp_path: Path) -> None:
    golden = _torch_dump(tmp_path / "golden", {0: 7, 1: 1, 2: 1})
    mine = _torch_dump(tmp_path / "mine", {0: 28, 1: 4, 2: 4})
    assert _pairs(_pairing(golden, mine)) == [(0, 0), (1, 1), (2, 2)]


def test_padding_is_no_warm_up(tmp_path: Path) -> None:
    golden = _torch_dump(tmp_path / "golden", {0: 14, 1: 2})
    mine = _torch_dump(tmp_path / "mine", {0: 11, 1: 2})
    assert _pairs(_pairing(golden, mine)) == [(0, 0), (1, 1)]


def test_token_folders_that_were_given_belong_together(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    golden = _torch_dump(tmp_path, {5: 1}) / "ait_dump" / "torch_tensors" / "cpu_7" / "5"
    pairing = _pairing(golden, captures["one"] / "1")
    assert _pairs(pairing) == [(5, 2)]
    assert pairing.pairs[0].reason == "both execution counts were given"


def test_the_other_pass_of_a_given_folder_decides_nothing(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    golden = _torch_dump(tmp_path, {0: 7}) / "ait_dump" / "torch_tensors" / "cpu_7" / "0"
    pairing = _pairing(golden, captures["one"] / "0")
    assert _pairs(pairing) == [(0, 0)]
    assert [problem.decides for problem in pairing.problems] == [False]


def test_the_users_step_map_is_followed(tmp_path: Path) -> None:
    dump = _torch_dump(tmp_path, {0: 7, 1: 1, 2: 1})
    assert _pairs(_pairing(dump, dump, parse_steps("0:0,1:2"))) == [(0, 0), (1, 2)]


def test_a_step_of_the_map_that_was_not_captured_is_a_problem(tmp_path: Path) -> None:
    dump = _torch_dump(tmp_path, {0: 7})
    pairing = _pairing(dump, dump, {0: 4})
    assert not pairing.pairs
    assert [problem.text for problem in pairing.problems] == ["step 4 was not captured"]


@pytest.mark.parametrize("text", ["", "0", "0:x", "0:1,0:2", "0:1,1:1"])
def test_a_step_map_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="step map"):
        parse_steps(text)


def test_processes_pair_by_rank_whatever_their_devices(builder: DumpBuilder) -> None:
    other = DumpBuilder(builder.root.parent / "other" / "ait_dump")
    for side, ranks in ((builder, {0: 10, 1: 11}), (other, {1: 20, 0: 21})):
        for device, (rank, pid) in enumerate(ranks.items()):
            process = f"{device}_{pid}"
            side.operation("0_Add", process=process)
            header = HEADER | {"environment": {"RANK": str(rank)}, "pid": pid}
            side.ledger(header, SEAL, process=process)
    pairing = _pairing(builder.root, other.root)
    assert {(p.golden.pid, p.mine.pid, p.reason) for p in pairing.pairs} == {
        (10, 21, "rank 0, step 0"),
        (11, 20, "rank 1, step 0"),
    }


@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (2, 4), (4, 2)])
def test_ranks_pair_with_the_process_that_they_do_a_share_of(
    builder: DumpBuilder, counts: tuple[int, int]
) -> None:
    other = DumpBuilder(builder.root.parent / "other" / "ait_dump")
    for side, count in zip((builder, other), counts, strict=True):
        for rank in range(count):
            process = f"{rank}_{10 + rank}"
            side.operation("0_Add", process=process)
            environment = {"RANK": str(rank)} if count > 1 else {}
            header = HEADER | {"environment": environment, "pid": 10 + rank}
            side.ledger(header, SEAL, process=process)
    pairs = _pairing(builder.root, other.root).pairs
    many = [p.golden if counts[0] > counts[1] else p.mine for p in pairs]
    few = [p.mine if counts[0] > counts[1] else p.golden for p in pairs]
    share = max(counts) // min(counts)
    assert [each.pid for each in many] == [10 + rank for rank in range(max(counts))]
    assert [each.pid for each in few] == [10 + rank // share for rank in range(max(counts))]
    assert [each.share for each in many] == [(rank % share, share) for rank in range(max(counts))]
    assert {each.share for each in few} == {(0, 1)}
    for place, each in enumerate(many):
        first = place // share * share
        mates = [10 + rank for rank in range(first, first + share) if rank != place]
        assert [peer.pid for peer in each.peers] == mates
        assert not few[place].peers


@pytest.mark.parametrize("left", [0, 1])
def test_a_rank_of_a_job_does_no_share_of_the_ranks_that_are_lost(
    builder: DumpBuilder, left: int
) -> None:
    other = DumpBuilder(builder.root.parent / "other" / "ait_dump")
    for side, ranks in ((builder, (0, 1)), (other, (left,))):
        for rank in ranks:
            process = f"{rank}_{10 + rank}"
            side.operation("0_Add", process=process)
            environment = {"RANK": str(rank), "WORLD_SIZE": "2"}
            side.ledger(
                HEADER | {"environment": environment, "pid": 10 + rank}, SEAL, process=process
            )
    pairing = _pairing(builder.root, other.root)
    assert [(p.golden.pid, p.mine.pid) for p in pairing.pairs] == [(10 + left, 10 + left)]
    (lost,) = pairing.problems
    assert lost.whole
    assert lost.text == f"process {11 - left} on device {1 - left} (rank {1 - left}) has no partner"


def test_processes_without_a_partner_are_problems(builder: DumpBuilder) -> None:
    other = DumpBuilder(builder.root.parent / "other" / "ait_dump")
    for process in ("0_10", "1_11"):
        builder.operation("0_Add", process=process)
    other.operation("0_Add", process="1_20")
    pairing = _pairing(builder.root, other.root)
    assert [(p.golden.pid, p.mine.pid) for p in pairing.pairs] == [(11, 20)]
    assert [problem.text for problem in pairing.problems] == [
        "process 10 on device 0 has no partner"
    ]


def test_losses_and_unsealed_ledgers_are_problems(builder: DumpBuilder, tmp_path: Path) -> None:
    builder.operation("0_Add")
    builder.ledger(HEADER, entry("0_4242/0/0_Add"))
    texts = [p.text for p in _pairing(builder.root, builder.root).problems]
    assert len(texts) == 2
    assert all("did not finish its capture" in text for text in texts)


def test_files_written_down_by_dump_data_pair_by_token(tmp_path: Path) -> None:
    golden, mine = tmp_path / "1_-1", tmp_path / "mine"
    mine.mkdir()
    rows = {}
    for data_id, token in (("a", 0), ("b", 1)):
        path = golden / "golden_tensor" / str(token) / f"{data_id}_tensor.pth"
        path.parent.mkdir(parents=True)
        torch.save(torch.ones(2), path)
        np.save(mine / f"{data_id}.npy", np.ones(2, np.float32))
        # the golden folder was moved after the run
        rows[data_id] = {str(token): [f"/elsewhere/{token}/{path.name}", f"{mine}/{data_id}.npy"]}
    (golden / "golden_tensor" / "metadata.json").write_text(json.dumps(rows))
    pairing = _pairing(golden, mine)
    assert [(p.golden.step, p.golden.operations[0].name) for p in pairing.pairs] == [
        (0, "a"),
        (1, "b"),
    ]
    assert not pairing.problems


def test_a_file_of_the_metadata_outside_of_both_paths_is_not_read(tmp_path: Path) -> None:
    golden, mine = tmp_path / "1_-1", tmp_path / "mine"
    mine.mkdir()
    secret = tmp_path / "secret.npy"
    np.save(secret, np.ones(2))
    (golden / "golden_tensor").mkdir(parents=True)
    rows = {"a": {"0": [str(secret), str(secret)]}}
    (golden / "golden_tensor" / "metadata.json").write_text(json.dumps(rows))
    pairing = _pairing(golden, mine)
    assert not pairing.pairs
    assert [problem.side for problem in pairing.problems] == ["golden", "mine"]
    assert all("lies outside of" in problem.text for problem in pairing.problems)
