"""Estimates for programs on ATB are what captures then write."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner

from ait_llm.cli.dump import dump
from ait_llm.core import OpId, StepRange
from ait_llm.dump.atb import plan_atb_dump, run_atb_dump
from ait_llm.plan.atb_sizes import AtbSizes
from ait_llm.plan.atb_template import survey_of_decoder
from ait_llm.plan.disk import Disk
from ait_llm.plan.meta_program import MetaRequest
from ait_llm.plan.pipeline import Plan, make_plan
from ait_llm.plan.survey import Surveyed, survey_atb
from ait_llm.probe import ProbeConfig, SaveTime, TensorPart

Written = Callable[[Path], tuple[Counter[str], Counter[str]]]
STEPS = StepRange.parse("0,4")
DISK = Disk(1 << 40)
TABLES = ("tensor", "layer", "op", "kernel", "cpu_profiling")
TIME = "20260101000000"
pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


@pytest.fixture(scope="module")
def asked(place: Path) -> ProbeConfig:
    return ProbeConfig(place / "out", TIME, types=TABLES, steps=STEPS)


@pytest.fixture(scope="module")
def surveyed(asked: ProbeConfig, llama: list[str], unheard: IO[bytes]) -> Surveyed:
    return survey_atb(llama, asked, os.environ, DISK, output=unheard)


def capture(words: list[str], config: ProbeConfig, unheard: IO[bytes]) -> Path:
    summary = run_atb_dump(plan_atb_dump(words, config, os.environ), os.environ, unheard)
    assert summary.complete, summary.problems
    return config.output


def test_the_run_that_reveals_sizes_leaves_nothing(surveyed: Surveyed, asked: ProbeConfig) -> None:
    assert surveyed.exit_code == 0
    assert not asked.output.exists()


def test_tensors_tables_times_and_topology_are_told_to_the_byte(
    surveyed: Surveyed, asked: ProbeConfig, llama: list[str], unheard: IO[bytes], written: Written
) -> None:
    estimate = surveyed.sizes.estimate(asked)  # type: ignore[arg-type]
    sizes, files = written(capture(llama, asked, unheard))
    told = {name: round(part.bytes) for name, part in estimate.parts.items() if part.files}
    for exact in ("tensors", "parameters", "topology"):
        assert told[exact] == sizes[exact], exact
    assert told["tables"] == pytest.approx(sizes["tables"], rel=0.02)
    assert told["ledger"] == pytest.approx(sizes["ledger"], rel=0.02)
    assert told["times"] == pytest.approx(sizes["times"], rel=0.1)
    assert estimate.bytes == pytest.approx(sizes.total(), rel=0.005)
    assert estimate.files == files.total()
    assert estimate.steps == 5
    assert estimate.total.room > estimate.bytes


@pytest.mark.parametrize(
    ("filters", "statistics"),
    [
        (
            {
                "types": ("tensor",),
                "operation_ids": (OpId((2, 0)), OpId((8,))),
                "operation_names": ("rms", "elewise"),
                "tensor_part": TensorPart.OUTPUTS,
                "save_time": SaveTime.BOTH,
                "steps": StepRange.parse("0,0,3,4"),
            },
            False,
        ),
        ({"types": ("stats",), "steps": StepRange.parse("1,2")}, True),
    ],
)
def test_other_options_are_told_from_the_same_run(
    surveyed: Surveyed,
    asked: ProbeConfig,
    llama: list[str],
    unheard: IO[bytes],
    written: Written,
    tmp_path: Path,
    filters: dict[str, object],
    statistics: bool,
) -> None:
    config = replace(asked, output=tmp_path, **filters)  # type: ignore[arg-type]
    estimate = surveyed.sizes.estimate(config)  # type: ignore[arg-type]
    sizes, files = written(capture(llama, config, unheard))
    told = {name: round(part.bytes) for name, part in estimate.parts.items()}
    assert estimate.files == files.total()
    assert told["tensors"] == pytest.approx(sizes["tensors"], rel=0.05 if statistics else 1e-9)
    assert told.get("statistics", 0) == pytest.approx(sizes["statistics"], rel=0.05)
    assert estimate.bytes == pytest.approx(sizes.total(), rel=0.05 if statistics else 0.005)


@pytest.fixture(scope="module")
def proposed(surveyed: Surveyed, asked: ProbeConfig, llama: list[str]) -> Plan:
    tensors = replace(asked, types=("tensor",))
    return make_plan(shlex.join(llama), tensors, surveyed, DISK, budget=1 << 20)


@pytest.mark.parametrize("number", [0, -1])
def test_a_proposed_command_writes_what_was_said(
    proposed: Plan, number: int, written: Written, tmp_path: Path
) -> None:
    proposal = proposed.proposals[number]
    assert proposal.estimate.bytes <= 1 << 20 < proposed.estimate.bytes
    words = shlex.split(proposed.command_of(proposal.options))
    assert words[:3] == ["ait", "llm", "dump"]
    result = CliRunner().invoke(dump, [*words[3:], "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    sizes, _ = written(tmp_path)
    assert proposal.estimate.bytes == pytest.approx(sizes.total(), rel=0.05)
    assert sizes.total() <= 1 << 20


def test_proposals_show_less_and_write_less_from_one_to_the_next(proposed: Plan) -> None:
    values = [each for each in proposed.proposals if "stats" not in each.options.types]
    sizes = [each.estimate.bytes for each in values]
    powers = [each.power for each in values]
    assert len(sizes) > 2
    assert len(proposed.proposals) <= 5
    assert sizes == sorted(sizes, reverse=True)
    assert powers == sorted(powers, reverse=True)
    assert all(each.keeps for each in proposed.proposals)


def test_where_nothing_fits_the_smallest_is_named(
    surveyed: Surveyed, asked: ProbeConfig, llama: list[str]
) -> None:
    plan = make_plan(shlex.join(llama), asked, surveyed, DISK, budget=100)
    assert plan.code == 3
    assert not plan.proposals
    assert plan.smallest is not None
    assert 100 < plan.smallest.estimate.bytes < plan.estimate.bytes


def test_an_encoder_is_told_to_the_byte(
    bert: list[str], unheard: IO[bytes], written: Written, tmp_path: Path
) -> None:
    config = ProbeConfig(tmp_path, TIME)
    sizes_of = survey_atb(bert, config, os.environ, DISK, output=unheard).sizes
    estimate = sizes_of.estimate(config)  # type: ignore[arg-type]
    sizes, files = written(capture(bert, config, unheard))
    assert round(estimate.parts["tensors"].bytes) == sizes["tensors"]
    assert estimate.bytes == pytest.approx(sizes.total(), rel=0.005)
    assert estimate.files == files.total()


def test_a_decoder_is_told_from_its_config(
    surveyed: Surveyed, asked: ProbeConfig, llama: list[str]
) -> None:
    # The demo's prompts have 7 and 4 tokens, which is a batch of 2 with 5.5 each: 11 in all.
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 256,
    }
    request = MetaRequest(config, batch=2, prompt=6, steps=6)
    tensors = replace(asked, types=("tensor",))
    told = survey_of_decoder(request, STEPS, DISK).sizes
    assert isinstance(told, AtbSizes)
    exact = surveyed.sizes.estimate(tensors)  # type: ignore[arg-type]
    estimate = told.estimate(tensors)
    assert (estimate.operations, estimate.kernels) == (exact.operations, exact.kernels)
    assert estimate.tensors == exact.tensors
    assert estimate.bytes == pytest.approx(exact.bytes, rel=0.05)
