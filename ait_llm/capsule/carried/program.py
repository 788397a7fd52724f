"""One operator whose numbers are wrong, to be run anywhere with Python 3.10, torch and NumPy.

    python run.py                                   golden against the dumped output
    python run.py --kernel my_kernel.py:function    golden against a kernel of yours
    python run.py --rerun                           golden against the operator run here again

A kernel gets the list of inputs (None for an absent one) and the dict of parameters, and returns
the output, or a tuple of all outputs. Exits with 0 if the output is within its limits, with 1 if
not, and with 2 if something else is in the way.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ait_llm.capsule.carried.verdict import ROUNDING, Found, Limits, judge
from ait_llm.opcheck.atb_call import forward
from ait_llm.opcheck.golden.base import EXACT, GOLDEN, Arithmetic
from ait_llm.opcheck.repro_script import load, read

_SHOWN = 8
_FACTS = {
    "title": str,
    "golden": {"module": str, "function": str, "of_ranks": bool, "place": int},
    "output": {"index": int, "is_input": bool},
    "contract": {"kind": str, "permitted": dict, "moves": bool, "text": str},
}


class Capsule:
    """A case on file.

    Args:
        folder: with ``case.json`` and ``case.safetensors``.
    """

    def __init__(self, folder: Path) -> None:
        self.tensors, _ = read(folder / "case.safetensors")
        try:
            self.facts = json.loads((folder / "case.json").read_bytes())
            _check(_FACTS, self.facts)
            self.calls = [
                ([self.tensors.get(name) for name in call["inputs"]], dict(call["params"]))
                for call in self.facts["calls"]
            ]
            self.inputs, self.params = self.calls[self.facts["golden"]["place"]]
            _check({"golden": Tensor, "dumped": Tensor}, self.tensors)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SystemExit(f"case.json: it is damaged ({error}); copy it again") from None

    def compute(self, arithmetic: Arithmetic) -> Tensor:
        """The output by the definition of the operator in ``source``."""
        golden, output = self.facts["golden"], self.facts["output"]
        function = getattr(importlib.import_module(golden["module"]), golden["function"])
        with torch.no_grad():
            if golden["of_ranks"]:
                inputs, params = zip(*self.calls, strict=True)
                result = function(inputs, params, arithmetic)[golden["place"]]
            else:
                result = function(self.inputs, self.params, arithmetic)
        found = result.updated_inputs if output["is_input"] else result.outputs
        tensor: Tensor = found[output["index"]]
        return tensor.reshape(self.tensors["golden"].shape)

    def limits(self) -> Limits:
        """What is permitted; the exact result is computed again."""
        contract = self.facts["contract"]
        exact = self.compute(EXACT).double() if contract["kind"] == ROUNDING else None
        return Limits(
            contract["kind"],
            contract["permitted"],
            exact,
            self.tensors.get("bound"),
            self.tensors.get("deviation"),
            self.tensors.get("defined"),
            contract["moves"],
        )

    def picked(self, returned: Any) -> Tensor:
        """The output in question of what a kernel returned."""
        if isinstance(returned, (tuple, list)):
            index = 0 if self.facts["output"]["is_input"] else self.facts["output"]["index"]
            returned = returned[index if index < len(returned) else 0]
        tensor: Tensor = returned.detach().cpu()
        return tensor

    def rerun(self, place: str, device: int) -> Tensor:
        """The output of the operator on this machine: torch's own, or that of torch_atb."""
        own = self.facts["rerun"]
        if own is not None:
            if place.startswith("npu"):
                importlib.import_module("torch_npu")
            function = getattr(importlib.import_module(own["module"]), own["function"])
            with torch.no_grad():
                return self.picked(function(self.inputs, self.params, place))
        library = self.facts["torch_atb"]
        if library is None:
            raise SystemExit("torch_atb does not have this operator as one call")
        if importlib.util.find_spec("torch_atb") is None:
            raise SystemExit("torch_atb is not installed here; run on the machine with the device")
        npu = importlib.util.find_spec("torch_npu") is not None
        if npu:
            importlib.import_module("torch_npu").npu.set_device(device)
        outputs, inputs = forward(
            importlib.import_module("torch_atb"),
            library["stem"],
            self.params,
            self.inputs,
            library["on_host"],
            lambda tensor: tensor.to(f"npu:{device}") if npu else tensor,
        )
        output = self.facts["output"]
        tensor: Tensor = (inputs if output["is_input"] else outputs)[output["index"]]
        return tensor


def main(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """Run a capsule; returns the exit code."""
    words = _parser().parse_args(arguments)
    try:
        capsule = Capsule(folder)
        describe(capsule)
        golden, limits = capsule.compute(GOLDEN), capsule.limits()
        changed = judge(capsule.tensors["golden"], golden, limits)
        if changed.check:
            raise SystemExit(
                f"golden computed here is not the golden of the capsule ({changed.text}); "
                "a file was changed, or this torch computes something else"
            )
        title, mine = "dumped", capsule.tensors["dumped"]
        if words.kernel:
            title = "kernel"
            given = [None if each is None else each.clone() for each in capsule.inputs]
            mine = capsule.picked(load(words.kernel)(given, capsule.params))
        elif words.rerun:
            title, mine = "rerun", capsule.rerun(words.device, words.device_id)
        return _report(title, mine, golden, limits, judge(mine, golden, limits))
    except SystemExit as error:
        if not isinstance(error.code, str):
            raise
        print(error.code, file=sys.stderr)
        return 2
    except Exception:  # noqa: BLE001  # of a kernel or a library; 1 would be a verdict
        traceback.print_exc()
        return 2


def _check(kinds: Mapping[str, Any], facts: Any) -> None:  # whatever JSON holds
    for name, kind in kinds.items():
        if isinstance(kind, Mapping):
            _check(kind, facts[name])
        elif not isinstance(facts[name], kind):
            raise TypeError(f"{name} is a {type(facts[name]).__name__}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", metavar="FILE.py:FUNCTION", help="judge this kernel")
    parser.add_argument("--rerun", action="store_true", help="judge the operator run here again")
    parser.add_argument(
        "--device", default="cpu", metavar="NAME", help="where torch runs it: cpu, cuda:0, npu:0"
    )
    parser.add_argument("--device-id", type=int, default=0, metavar="N", help="NPU of torch_atb")
    return parser


def describe(capsule: Capsule) -> None:
    """Print what it is about."""
    facts = capsule.facts
    print(facts["title"])
    print(f"params: {json.dumps(capsule.params)}")
    for name, tensor in capsule.tensors.items():
        if "intensor" in name:
            print(f"{name}: {str(tensor.dtype)[6:]} {list(tensor.shape)}")
    print(f"contract: {facts['contract']['text']}")


def _report(title: str, mine: Tensor, golden: Tensor, limits: Limits, found: Found) -> int:
    print(f"golden: {_first_values(golden)}")
    print(f"{title}: {_first_values(mine)}")
    print(f"{'FAIL' if found.check else 'PASS'} {title}: {found.text}")
    if found.place is not None:
        index = [int(part) for part in np.unravel_index(found.place, tuple(golden.shape))]
        what = "worst index" if found.bad is None else "first bad index"
        values = f"golden {_value(golden, found.place)}, {title} {_value(mine, found.place)}"
        bound = "" if limits.bound is None else f", bound {_value(limits.bound, found.place)}"
        print(f"{what} {index}: {values}{bound}")
    return 1 if found.check else 0


def _first_values(tensor: Tensor) -> str:
    values = tensor.reshape(-1)[:_SHOWN].double().tolist()
    return f"{values}{' ...' if tensor.numel() > _SHOWN else ''}"


def _value(tensor: Tensor, place: int) -> str:
    return repr(float(tensor.reshape(-1)[place]))
