"""The zip file: the same case gives the same bytes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ait_llm import __version__
from ait_llm.capsule.case import Case, Origin
from ait_llm.capsule.source import Extraction
from ait_llm.capsule.tolerance import Tolerance
from ait_llm.judge.standards import Output
from ait_llm.opcheck.repro import write_tensors
from ait_llm.report.files import FILE_MODE, make_folder, replacing

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = 1
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can hold
_RUN = '''"""{title}

{usage}"""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))  # not there where Python runs isolated

from {module} import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(FOLDER))
'''
_KERNEL = '''"""The definition of the operator as a kernel of its own: a place to start from.

    python run.py --kernel kernel.py:kernel
"""

from {base} import DEVICE
from {module} import {function}


def kernel(inputs, params):
    """Compute in float32 and round once, as an accelerator does."""
    result = {function}({call}, DEVICE){picked}
    return {returned}
'''


def write_capsule(
    path: Path,
    origin: Origin,
    output: Output,
    tolerance: Tolerance,
    verdict: Mapping[str, Any],
    shrunk: Mapping[str, Any] | None,
) -> None:
    """Write a capsule.

    Args:
        path: of the zip file.
        origin: the case and what is known of its capture.
        output: the case with golden.
        tolerance: its limits.
        verdict: what opcheck said.
        shrunk: what was made smaller, None for a case as dumped.

    Raises:
        UsageError: the file cannot be written, or the operator's source is not there.
    """
    case = origin.case
    texts, held = _sources(case)
    facts = {
        "schema": SCHEMA,
        "tool": f"ait-llm {__version__}",
        "title": case.title,
        "operator": dict(case.place),
        "calls": [
            {"inputs": _names(case, rank), "params": dict(call.params) | dict(held.params)}
            for rank, call in enumerate(case.calls)
        ],
        "golden": held.golden,
        "rerun": held.again,
        "output": {"index": case.index, "is_input": case.is_input},
        "contract": {
            "kind": tolerance.limits.kind,
            "permitted": dict(tolerance.limits.permitted),
            "moves": tolerance.limits.moves,
            "text": tolerance.text,
        },
        "verdict": dict(verdict),
        "torch_atb": origin.library,
        "environment": dict(origin.environment),
        "shrunk": None if shrunk is None else dict(shrunk),
    }
    texts["case.json"] = json.dumps(facts, indent=1, ensure_ascii=True) + "\n"
    texts["README.md"] = _readme(facts, sorted([*texts, "README.md", "case.safetensors"]))
    make_folder(path.parent)
    with replacing(path, binary=True) as file, zipfile.ZipFile(file, "w") as archive:
        for name in sorted(texts):
            archive.writestr(_entry(name), texts[name].encode(), zipfile.ZIP_DEFLATED)
        with archive.open(_entry("case.safetensors"), "w", force_zip64=True) as member:
            write_tensors(member, _tensors(case, output, tolerance), {"title": case.title})


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.create_system = 3  # Unix, wherever it is written
    info.external_attr = (0o100000 | FILE_MODE) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _names(case: Case, rank: int) -> list[str | None]:
    prefix = f"rank{rank}." if case.of_ranks else ""
    return [
        None if tensor is None else f"{prefix}intensor{index}"
        for index, tensor in enumerate(case.calls[rank].inputs)
    ]


def _tensors(case: Case, output: Output, tolerance: Tolerance) -> dict[str, Tensor]:
    tensors = {
        name: tensor
        for rank, call in enumerate(case.calls)
        for name, tensor in zip(_names(case, rank), call.inputs, strict=True)
        if name is not None and tensor is not None
    }
    return {**tensors, "golden": output.golden, "dumped": output.mine, **tolerance.tensors}


@dataclass(frozen=True, slots=True)
class _Held:
    """Where among the files of a capsule functions are.

    Attributes:
        golden: the definition of the operator.
        again: what runs it again; None where torch has it not.
        params: parameters that name a function.
    """

    golden: Mapping[str, Any]
    again: Mapping[str, str] | None
    params: Mapping[str, str]


def _sources(case: Case) -> tuple[dict[str, str], _Held]:
    """The Python files, and where in them functions are."""
    from ait_llm.capsule.carried import program

    extraction = Extraction()
    definition = case.definition
    main = extraction.add(program.__name__, "main")
    extraction.add("ait_llm.opcheck.golden.base", "DEVICE")
    module = extraction.add(definition.__module__, definition.__name__)
    base = extraction.add("ait_llm.opcheck.golden.base", "DEVICE")
    again: dict[str, str] | None = None
    named: dict[str, str] = {}
    if case.again is not None:
        name = case.again.__name__
        again = {"module": extraction.add(case.again.__module__, name), "function": name}
    if case.function:
        place, _, name = str(case.call.params[case.function]).partition(":")
        named[case.function] = f"{extraction.add(place, name)}:{name}"
    texts = extraction.files()
    usage = (program.__doc__ or "").partition("\n\n")[2]
    texts["run.py"] = _RUN.format(title=case.title, usage=usage, module=main)
    collective = case.golden.compute_ranks is not None
    if not case.of_ranks:
        texts["kernel.py"] = _KERNEL.format(
            base=base,
            module=module,
            function=definition.__name__,
            call="[inputs], [params]" if collective else "inputs, params",
            picked="[0]" if collective else "",
            returned=f"result.updated_inputs[{case.index}]"
            if case.is_input
            else "tuple(result.outputs)",
        )
    golden = {
        "module": module,
        "function": definition.__name__,
        "of_ranks": collective,
        "place": case.rank,
    }
    return texts, _Held(golden, again, named)


def _readme(facts: Mapping[str, Any], files: list[str]) -> str:
    verdict = facts["verdict"]
    environment = json.dumps(facts["environment"], indent=1)
    kernel = (
        "`kernel.py` has the definition of the operator as such a kernel, to start from.\n"
        if "kernel.py" in files
        else "The operator needs several ranks; a kernel gets the inputs of the dumped one only.\n"
    )
    rerun = "with `torch_atb`, where that is installed"
    if facts["rerun"] is not None:
        rerun = "again with this torch; `--device cuda:0` or `--device npu:0` says where"
    shrunk = facts["shrunk"]
    size = "" if shrunk is None else f"\nMade smaller: {shrunk['text']}.\n"
    return f"""# {facts["title"]}

opcheck says {verdict["verdict"]}{": " if verdict["reason"] else ""}{verdict["reason"]}.
{size}
Needs Python 3.10 or later, torch and NumPy, and nothing else.

    python run.py
    python run.py --kernel my_kernel.py:function
    python run.py --rerun

The first computes the output again by the definition in `source` and compares it with the dumped
one. The second compares a kernel of yours, `function(inputs, params)`, which returns the output or
a tuple of all. The third runs the operator {rerun}. Each ends
with 0 if the output is within its limits, with 1 if it is not, with 2 if it cannot tell.
{kernel}
- `case.json`: parameters, limits, verdict, and the environment of the capture
- `case.safetensors`: inputs, `golden`, `dumped`, and for floats `bound`, the largest error of each
  element, and `deviation`, its expected size
- `source`: the definition of the operator, cut out of {facts["tool"]}

Captured with:

```json
{environment}
```
"""
