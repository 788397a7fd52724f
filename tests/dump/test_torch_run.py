"""The launcher adds up what a PyTorch program wrote, says what is missing, and verifies itself.

The programs stand in for captured ones: they write ledgers and reports without torch.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

import ait_llm
from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.dump.torch_run import plan_torch_dump, run_torch_dump
from ait_llm.dump.torch_summary import TorchSummary
from ait_llm.errors import UsageError

PROGRAM = """
import json, os, sys
from ait_llm.dump.inject.channel import report
settings = json.loads(os.environ["AIT_TORCH_CAPTURE"])
ledger = f"{settings['output']}/ait_dump/ledger"
os.makedirs(ledger, exist_ok=True)

def write(*lines, run=settings["run"], device="cpu", pid=os.getpid()):
    header = {"kind": "header", "schema": 1, "producer": "torch", "device": device, "pid": pid,
              "host": HOST, "options": {"run": run}}
    with open(f"{ledger}/{device}_{pid}.jsonl", "w") as file:
        for line in (header, *lines):
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\\n")

def op(name, step=0, state="saved", tensors=2, type="Net", **more):
    return {"kind": "op", "op": name, "type": type, "path": f"cpu_1/{step}/{name}", "step": step,
            "call": 0, "state": state, "tensors": tensors, "bytes": 8 * tensors, **more}

SEAL = {"kind": "seal", "end": "exit"}
"""


def dump(folder: Path, code: str, **settings: Any) -> TorchSummary:
    host = f"HOST = {platform.node()!r}\n"
    words = [sys.executable, "-c", host + PROGRAM + code]
    source = str(Path(ait_llm.__file__).parent.parent)
    environ = {**os.environ, "PYTHONPATH": source}
    plan = plan_torch_dump(words, TorchSettings(output=folder / "out", **settings), environ)
    return run_torch_dump(plan, environ)


def test_a_complete_capture_is_added_up(tmp_path: Path) -> None:
    code = (
        "report('torch'); report('model', type='Net')\n"
        "write(op('root'), op('root.up', 3), op('root.aten.add.Tensor', 3, type='aten.add.Tensor'),"
        " op('root.weights', type='weights', tensors=5), SEAL)"
    )
    summary = dump(tmp_path, code)
    assert (summary.problems, summary.notes) == ((), ())
    (process,) = summary.processes
    assert (process.device, process.end, process.weights) == ("cpu", "exit", 5)
    assert summary.steps == (0, 3)
    assert [summary.total(n) for n in ("modules", "operators", "tensors", "bytes")] == [
        2,
        1,
        11,
        88,
    ]
    value = summary.as_dict()
    assert (value["complete"], value["sealed"], value["observer"]) == (True, True, None)
    assert value["processes"][0]["steps"] == [0, 3]
    assert not list((tmp_path / "out").glob(".ait_run_*"))


def test_ledgers_of_other_runs_and_of_other_kinds_do_not_count(tmp_path: Path) -> None:
    code = (
        "report('model', type='Net'); write(op('root'), SEAL)\n"
        "write(op('root'), SEAL, run='earlier', pid=1)\n"
        'open(f\'{ledger}/0_2.jsonl\', \'w\').write(\'{"kind": "header", "producer": "atb"}\')'
    )
    assert len(dump(tmp_path, code).processes) == 1


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("write(op('root', state='failed', lost=1, reason='disk full'), SEAL)", "(disk full)"),
        ("write(op('root', state='dropped', reason='fake'), SEAL)", "could not be saved at all"),
        ("write(op('root'))", "is still running"),
        ("write(op('root', 4), pid=2**22 + 1)", "the last call it recorded is root of step 4"),
        ("write(op('root'), 'torn', SEAL)", "1 lines of"),
        (
            "note = {'kind': 'note', 'unseen': 2, 'modules': ['root.up', 'root.down']}\n"
            "write(op('root'), note, SEAL)",
            "2 modules ran inside torch.compile, where hooks do not see them (first: root.up)",
        ),
        ("write(op('root'), SEAL); report('failed', reason='no numpy')", "captured: no numpy"),
    ],
)
def test_losses_are_said(tmp_path: Path, code: str, part: str) -> None:
    # While the launcher looks, the process of the test itself is alive.
    code = f"report('model')\nimport os\nalive = {os.getpid()}\n{code}"
    code = code.replace("write(op('root'))", "write(op('root'), pid=alive)")
    summary = dump(tmp_path, code)
    (problem,) = summary.problems
    assert part in problem
    assert not summary.complete


def test_values_that_are_no_tensors_are_counted_with_the_first_examples(tmp_path: Path) -> None:
    missed = [{"name": f"input_{n}", "reason": "object of type a.B"} for n in range(4)]
    code = f"report('model'); write(op('root', not_captured={missed}), SEAL)"
    summary = dump(tmp_path, code)
    (note,) = summary.notes
    assert "4 values are no tensors" in note
    assert "such as root input_0: object of type a.B; root input_1" in note
    assert summary.complete
    assert summary.total("not_captured") == 4


@pytest.mark.parametrize(
    ("code", "settings", "parts"),
    [
        ("", {}, ["no process that imports torch was seen", "-I, -E or -S", "PYTHONPATH"]),
        ("sys.exit(4)", {}, ["the program failed (exit code 4) before any model was called"]),
        ("report('torch')", {}, ["torch was imported, but no model was called", "single modules"]),
        ("report('torch'); report('end', compiled=True)", {}, ["TORCHDYNAMO_DISABLE=1"]),
        (
            "report('torch'); report('skipped', device='npu1')",
            {"device_id": 3},
            ["no model runs on device 3; there are models on npu1"],
        ),
        ("report('failed', reason='no torch.nn')", {}, ["could not be captured: no torch.nn"]),
        (
            "report('model'); report('steps', root='root', last=7); write(SEAL)",
            {
                "steps": StepRange(((9, 9),)),
                "type_prefixes": ("rms",),
                "module_names": ("*.mlp",),
                "layers": ((4, 5),),
            },
            ["-er 9,9 (the model's steps went up to 7)", "rms", "*.mlp", "layers 4,5"],
        ),
    ],
)
def test_a_capture_of_nothing_says_why(
    tmp_path: Path, code: str, settings: dict[str, Any], parts: list[str]
) -> None:
    (problem,) = dump(tmp_path, code, **settings).problems
    for part in parts:
        assert part in problem


OUTPUTS = """
report('torch', rank=os.environ.get('RANK')); report('model')
if settings['capture']:
    write(op('root'), SEAL)
def outputs(*digests):
    for digest in digests:
        report('output', root='root', sha256=str(digest))
"""


@pytest.mark.parametrize(
    ("code", "verdict", "part"),
    [
        ("outputs(1, 2)", "same", "2 outputs of the model have equal SHA-256"),
        ("outputs(1, settings['capture'])", "changed", "output 1 of root differs between runs"),
        ("outputs(*[1] * (1 + settings['capture']))", "changed", "called 2 times in one run and 1"),
        ("outputs(1); sys.exit(settings['capture'])", "changed", "exit code 1, another with 0"),
        ("outputs(os.urandom(8).hex())", "undecided", "the program does not repeat itself"),
    ],
)
def test_the_observer_is_verified_by_running_without_it(
    tmp_path: Path, code: str, verdict: str, part: str
) -> None:
    summary = dump(tmp_path, OUTPUTS + code, observe=True)
    assert summary.observation is not None
    assert summary.observation.verdict == verdict
    assert part in summary.observation.detail


def test_processes_of_one_kind_may_end_in_any_order(tmp_path: Path) -> None:
    # Process ids differ between runs; the sequences of a run count, not who wrote them.
    code = (
        "import socket\nfolder = os.environ['AIT_TORCH_CHANNEL']\n"
        "for name, digest in (('a', settings['capture']), ('b', not settings['capture'])):\n"
        "    line = {'event': 'output', 'root': 'root', 'sha256': str(digest)}\n"
        "    open(f'{folder}/{name}.jsonl', 'w').write(json.dumps(line))\n"
    )
    summary = dump(tmp_path, OUTPUTS + code, observe=True)
    assert summary.observation is not None
    assert summary.observation.verdict == "same"


def test_what_the_program_prints_is_heard_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dump(tmp_path, OUTPUTS + "outputs(1); print('heard')", observe=True)
    assert capfd.readouterr().out == "heard\n"


def test_a_program_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no program 'nowhere'"):
        plan_torch_dump(["nowhere"], TorchSettings(output=tmp_path), os.environ)


def test_an_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        plan_torch_dump([sys.executable], TorchSettings(output=tmp_path / "file"), os.environ)
