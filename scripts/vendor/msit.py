"""MSIT's golden operators against ours, on the inputs of the vendor's operator cases.

Its modules are imported where they lie. What they import of the device's libraries and of MSIT's
own logging, file reading and metrics is given stand-ins: a golden needs none of it.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from vendor.cases import CaseError, read_cases
from vendor.generator import Generator, NotRunError, limit
from vendor.goldens import differs, recorded
from vendor.outcome import Disagreement, Outcome, Side

from ait_llm.opcheck.golden import UnverifiableError
from ait_llm.opcheck.selftest.recorded import Recorded

FOLDER = Path("msit/components/llm/msit_llm")
PACKAGE = "msit_llm"
# Its goldens are many loops in Python.
MOST_ELEMENTS = 1 << 18
SECONDS = 30
GENERATOR_AGREES = (
    "the vendor's own generator computes what ours does from the same inputs and parameters"
)


def run(
    checkout: Path, operators: Sequence[str] = (), *, cases: Path, largest: int = MOST_ELEMENTS
) -> Outcome:
    """All small positive cases of ``cases``, a checkout of ATB, that MSIT has a golden for."""
    torch.set_num_threads(1)
    outcome = Outcome()
    generator = Generator(cases)
    goldens = _goldens(checkout)
    for case in read_cases(cases, operators):
        if not case.passes or case.operator not in goldens:
            continue
        try:
            made = recorded(case, generator, largest=min(largest, MOST_ELEMENTS))
            theirs = _golden(goldens[case.operator], made)
            said = differs(replace(made, golden=theirs))
        except (NotRunError, CaseError, UnverifiableError) as reason:
            outcome.skip(case.operator, str(reason))
            continue
        if not said:
            outcome.agree(case.operator)
            continue
        if not differs(made):
            side, why = Side.VENDOR, GENERATOR_AGREES
        else:
            side, why = Side.OURS, ""
        outcome.disagreed.append(Disagreement(case.operator, case.label, said, side, why))
    return outcome


def _golden(kind: Any, made: Recorded) -> list[Tensor]:
    """What MSIT's golden computes."""
    info = {
        "op_id": "0",
        "op_name": made.op,
        "op_param": dict(made.params),
        "tensor_path": "",
        "pid": "0",
        "atb_rerun": False,
        "optimization_closed": "",
    }
    one = kind("golden_calc", case_info=info)
    inputs = [tensor.clone() for tensor in made.inputs]
    one.in_tensors, one.out_tensors = inputs, [tensor.clone() for tensor in made.golden]
    ranks = made.ranks or [made.inputs] * int(made.params.get("rankSize", 1))
    firsts = [own[0] for own in ranks]
    one.get_new_in_tensors = lambda: [tensor.clone() for tensor in firsts]
    rest = list(made.inputs[1:])
    one.get_in_tensors_from_single_device = lambda number, rank: [firsts[number], *rest]
    try:
        with limit(SECONDS, "MSIT's golden"):
            found = one.golden_calc(inputs)
    except NotRunError:
        raise
    except Exception as error:
        raise NotRunError(f"MSIT's golden fails: {type(error).__name__}: {error}") from error
    if not isinstance(found, list | tuple) or not all(isinstance(x, Tensor) for x in found):
        raise NotRunError("MSIT's golden gives no tensors")
    return [tensor.detach() for tensor in found]


def _goldens(checkout: Path) -> Mapping[str, Any]:
    """MSIT's goldens by the name of the operator."""
    folder = checkout / FOLDER
    if not (folder / "opcheck" / "check_case").is_dir():
        raise SystemExit(f"{checkout} has no {FOLDER}/opcheck/check_case; give an older checkout")
    logger = logging.getLogger(PACKAGE)
    logger.setLevel(logging.CRITICAL)
    names = SimpleNamespace(abs="abs", cos_sim="cos_sim", kl="kl")
    modules: dict[str, dict[str, Any]] = {
        PACKAGE: {"__path__": [str(folder)]},
        f"{PACKAGE}.common": {"__path__": []},
        f"{PACKAGE}.common.log": {"logger": logger},
        f"{PACKAGE}.common.tool": {"read_atb_data": None},
        f"{PACKAGE}.common.utils": {
            "NAMEDTUPLE_PRECISION_METRIC": names,
            "NAMEDTUPLE_PRECISION_MODE": names,
        },
        "components": {"__path__": []},
        "components.utils": {"__path__": []},
        "components.utils.cmp_algorithm": {"CMP_ALG_MAP": {}, "CUSTOM_ALG_MAP": {}},
        "components.utils.util": {
            "safe_get": lambda container, key: container[key],
            "safe_del": lambda container, key: container.__delitem__(key),
        },
    }
    for name, attributes in modules.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        sys.modules[name] = module
    found: Mapping[str, Any] = importlib.import_module(f"{PACKAGE}.opcheck.check_case").OP_NAME_DICT
    return {name: kind for name, kind in found.items() if kind}
