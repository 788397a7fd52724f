"""Capsules of the demo's faults: they fail alone, and pass with the fault removed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from capsules import run_alone, unpacked
from click.testing import CliRunner
from fault_matrix import LAYERS, Case, dump_faulty_llamas
from safetensors.torch import save_file

from ait_llm.capsule import Capsule, make_capsule
from ait_llm.cli.main import ait

pytestmark = pytest.mark.native
CASES = [
    Case("wrong_epsilon", 1, "input norm"),
    Case("wrong_softmax_scale", 0, "attention"),
    Case("missing_mask", 1, "attention"),
    Case("swapped_heads", 2, "attention"),
    Case("stale_padding", 1, "attention"),
    Case("half_accumulation", 1, "down"),
    Case("dropped_tail", 0, "o"),
    Case("scale_1pct", 2, "swiglu"),
    Case("scale_1pct", 1, "cache"),
    Case("wrong_element", 1, "qkv"),
    Case("inf_at_step", 0, "gate-up"),
]
SMALL = [case for case in CASES if case.fault not in ("missing_mask", "wrong_softmax_scale")]
KINDS = {
    "wrong_epsilon": "wrong epsilon",
    "swapped_heads": "swapped heads",
    "stale_padding": "stale or uninitialised region",
    "half_accumulation": "half-precision accumulation",
    "dropped_tail": "truncated reduction",
    "scale_1pct": "constant scale",
    "wrong_element": "isolated elements",
    "inf_at_step": "values not finite",
}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Llama demo without a fault and once with each, in one capture."""
    folder = tmp_path_factory.mktemp("faulty")
    save_file({"tokens": torch.tensor([[5, 9], [7, 3]])}, folder / "tokens.safetensors")
    return dump_faulty_llamas(folder, folder / "ait_dump", ["", *(each.request for each in CASES)])


@pytest.fixture(scope="module")
def made(
    dumps: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Capsule]:
    """A capsule of each fault as dumped, a small one, and one of the operator without the fault."""
    folder = tmp_path_factory.mktemp("capsules")
    found = {}
    for number, case in enumerate(CASES):
        for what, request, smaller in (
            ("faulty", case.request, False),
            ("clean", "", False),
            ("small", case.request, True),
        ):
            if what == "small" and case not in SMALL:
                continue
            found[str(case), what] = make_capsule(
                dumps[request], case.op_id, folder / f"{number}{what}.zip", smaller=smaller
            )
    return found


@pytest.fixture(scope="module")
def ended(made: dict[tuple[str, str], Capsule]) -> dict[tuple[str, str], tuple[int | str, str]]:
    """How their scripts end, alone; of the faulty ones also with golden as the kernel."""
    commands: dict[tuple[str, str], list[str | Path]] = {}
    for (case, what), capsule in made.items():
        script = unpacked(capsule.path)
        commands[case, what] = [script]
        if what != "clean":
            kernel = f"{script.with_name('kernel.py')}:kernel"
            commands[case, f"{what} with golden"] = [script, "--kernel", kernel]
    return dict(zip(commands, run_alone(list(commands.values())), strict=True))


def test_all_faults_fail_alone_and_pass_without_the_fault(
    ended: dict[tuple[str, str], tuple[int | str, str]],
) -> None:
    expected = {(case, what): int(what in ("faulty", "small")) for case, what in ended}
    assert {name: code for name, (code, _) in ended.items()} == expected
    assert len({case for case, _ in ended}) == 11


def test_the_script_prints_golden_the_dumped_value_and_the_first_bad_index(
    ended: dict[tuple[str, str], tuple[int | str, str]],
) -> None:
    (case,) = (each for each in CASES if each.fault == "wrong_element")
    _, text = ended[str(case), "faulty"]
    assert f"LinearOperation {case.op_id} outtensor0, step 0, device" in text
    assert "FAIL dumped: 1 of " in text
    line = text.splitlines()[-1]
    assert line.startswith("first bad index [5, 64]: golden ")
    golden, dumped = (float(value) for value in re.findall(r"(?:golden|dumped) (\S+),", line))
    assert dumped == -golden


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_a_small_capsule_shows_the_same_kind_of_error(
    made: dict[tuple[str, str], Capsule], case: Case
) -> None:
    small, large = made[str(case), "small"], made[str(case), "faulty"]
    assert not small.passed
    assert small.shrunk is not None
    assert small.shrunk["kind"] == KINDS[case.fault]
    assert small.byte_count == small.shrunk["bytes_after"] < large.byte_count / 3
    assert large.byte_count == small.shrunk["bytes_before"]


def test_the_first_step_that_fails_is_taken(dumps: dict[str, Path], tmp_path: Path) -> None:
    assert LAYERS == 3
    capsule = make_capsule(dumps[""], CASES[0].op_id, tmp_path / "a.zip")
    assert "step 0" in capsule.title


def test_the_command_says_what_it_wrote(dumps: dict[str, Path], tmp_path: Path) -> None:
    case = CASES[0]
    words = ["--dump", dumps[case.request], "--op", case.op_id, "-o", tmp_path / "case.zip"]
    ran = CliRunner().invoke(ait, ["llm", "repro", *map(str, words), "--shrink"])
    assert ran.exit_code == 0, ran.output
    assert f"ait llm repro: FAIL: RmsNormOperation {case.op_id} outtensor0, step 0" in ran.output
    assert "made smaller: 2,944 to 384 bytes of inputs and output" in ran.output
    assert (tmp_path / "case.zip").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("op", "options", "reason"),
    [
        ("2", (), "2 is a graph; give one operator of it, such as 2_0_0_0_0 RmsNorm"),
        ("77", (), "there is no operator 77 in the dump"),
        ("2_1", ("--step", "9"), "2_1 ran at step 0 of device"),
        ("2_1", ("--tensor", "outtensor5"), "it has no outtensor5 that could be compared"),
        ("2_1", ("--max-size", "1K"), "more than 1,024; raise --max-size"),
    ],
)
def test_what_cannot_be_is_told(
    dumps: dict[str, Path], tmp_path: Path, op: str, options: tuple[str, ...], reason: str
) -> None:
    words = ["--dump", str(dumps[""]), "--op", op, "-o", str(tmp_path / "a.zip"), *options]
    ran = CliRunner().invoke(ait, ["llm", "repro", *words])
    assert ran.exit_code == 2
    assert reason in ran.output or reason in str(ran.exception)
    assert not (tmp_path / "a.zip").exists()
