"""Results of earlier commands that are read again: baselines and capsules."""

from __future__ import annotations

import contextlib
import functools
import io
import zipfile
from pathlib import Path

import seeds
import torch
from engine import Target
from envelopes import safetensors
from mutations import mutate_json, mutate_json_lines
from operator_dumps import LINEAR, OperatorDump
from table_targets import JOURNAL, report_lines

from ait_llm.capsule import make_capsule
from ait_llm.capsule.carried.program import Capsule, describe
from ait_llm.errors import UsageError
from ait_llm.opcheck.baseline import OpcheckBaseline
from ait_llm.report.baseline.of_compare import Baseline

_REPORT = {"standard": "contract", "rerun": "", "problems": ["a"], "partial": False}


@functools.cache
def _capsule() -> dict[str, bytes]:
    """The members of a capsule of a wrong Linear."""

    def make(folder: Path) -> dict[str, bytes]:
        dump = OperatorDump(folder / "ait_dump")
        x = torch.linspace(1, 2, 8).reshape(2, 4).half()
        dump.add("0_LinearOperation", [x, x], [x[:, :2] * 0], LINEAR)
        dump.ledger()
        with zipfile.ZipFile(make_capsule(dump.root, "0", folder / "c.zip").path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    found: dict[str, bytes] = seeds.in_folder(make)
    return found


def _open_capsule(path: Path) -> None:
    """A script that ends with a sentence where it cannot read its files."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            describe(Capsule(path.parent))
    except SystemExit as error:
        raise UsageError(f"{path.parent}: {error}") from None


def _with_other_member(name: str) -> Target:
    other = {"case.json": "case.safetensors", "case.safetensors": "case.json"}[name]
    return Target(
        f"capsule_{name.rpartition('.')[2]}",
        name,
        lambda: [_capsule()[name]],
        _open_capsule,
        mutate_json if name == "case.json" else safetensors,
        lambda folder: (folder / other).write_bytes(_capsule()[other]),
        names_folder=True,
    )


TARGETS = (
    Target("compare_baseline", "last.jsonl", report_lines, Baseline, mutate_json_lines),
    Target(
        "opcheck_baseline",
        "last.json",
        lambda: [seeds.json_bytes(_REPORT | {"outputs": JOURNAL[1]["outputs"]})],
        OpcheckBaseline,
        mutate_json,
    ),
    _with_other_member("case.json"),
    _with_other_member("case.safetensors"),
)
