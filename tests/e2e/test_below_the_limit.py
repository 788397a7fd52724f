"""An operator of a compiled program that is wrong by less than two right runs may be apart.

Its result is a little larger than it should be, and all that follows from it follows from the wrong
values. Either that operator is named or none is; an innocent one never.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from compiled_models import Llama
from ge_faults import FaultyDump

from ait_llm.cli.main import ait
from ait_llm.core import DType
from ait_llm.dump import fx_backend
from ait_llm.dump.fx.graph_capture import _StepCapture
from ait_llm.dump.fx.session import sessions
from ait_llm.judge.tolerance import tolerance_for

SHARE = 0.8  # of what two right runs may be apart
LIMITS = {
    getattr(torch, dtype.torch_name): tolerance_for(dtype, dtype).relative_euclidean
    for dtype in (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
}
# Products of the recording, healthy too, that were added up in float16: beyond their contract.
IN_FLOAT16 = ("MatMul_1", "MatMul_2")
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def compared(golden: Path, mine: Path, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and result of ``ait llm compare``."""
    words = ["llm", "compare", "-gp", golden, "-mp", mine, "-o", out, "-j", "1", "--json"]
    result = CliRunner().invoke(ait, [*map(str, words), *options])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


def of_nodes(folder: Path, dtype: torch.dtype, node: str = "", factor: float = 1.0) -> Path:
    """A capture of FX nodes, of which one may return too much."""
    right = _StepCapture.call

    def call(self: Any, plan: Any, target: Any, args: Any, kwargs: Any) -> Any:
        def wrong(*given: Any, **named: Any) -> Any:
            result = target(*given, **named)
            first, *more = result if isinstance(result, tuple) else (result,)
            scaled = (first.double() * factor).to(first.dtype)
            return (scaled, *more) if more else scaled

        return right(self, plan, wrong if plan.name == node else target, args, kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_StepCapture, "call", call)
        torch._dynamo.reset()
        torch.manual_seed(0)
        run = torch.compile(Llama().to(dtype).eval(), backend=fx_backend.capture(folder))
        with torch.no_grad():
            run(torch.arange(5))
        torch._dynamo.reset()
    sessions._open.pop(folder).close("exit")
    return folder


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, Path]:
    """Captures of the healthy program."""
    folder = tmp_path_factory.mktemp("right")
    return {dtype: of_nodes(folder / str(dtype), dtype) for dtype in LIMITS}


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("node", ["mm_1", "mul_1", "rsqrt_1", ATTENTION, "add_2", "silu"])
def test_a_node_that_returns_a_little_too_much_is_named(
    node: str, dtype: torch.dtype, right: Mapping[torch.dtype, Path], tmp_path: Path
) -> None:
    mine = of_nodes(tmp_path / "mine", dtype, node, 1 + SHARE * LIMITS[dtype])
    code, found = compared(right[dtype], mine, tmp_path / "out")
    assert code == 1
    [origin] = found["origins"]
    assert (origin["op"], origin.get("certain", True)) == (node, True)
    assert "from its own inputs recomputed" in origin["evidence"]


def origins(found: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Operators that are named, and their steps."""
    return [(each["op"], each["step"]) for each in found["origins"]]


@pytest.fixture(scope="module")
def short(
    recorded_decoder: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Recorded dumps without the later steps."""
    found = {}
    for name, folder in recorded_decoder.items():
        found[name] = tmp_path_factory.mktemp("short") / name
        shutil.copytree(folder, found[name], ignore=shutil.ignore_patterns("graph_3", "graph_3_*"))
    return found


def scaled(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A little more, in float16."""
    wrong: np.ndarray[Any, Any] = array.astype(np.float32) * (1 + SHARE * LIMITS[torch.float16])
    return wrong.astype(array.dtype)


@pytest.mark.parametrize(
    ("golden", "token", "operator", "fused"),
    [
        ("fx", 0, "Add_4", "Add_4"),
        ("fx", 1, "Mul_8", "SwishMul_8Cast_17"),
        ("fx", 0, "MatMulV2", "MatMulV2"),
        ("unfused", 1, "Muls_1", "Muls_1Cast_28"),
        ("unfused", 0, "Transpose_3", "Transpose_3"),
        ("unfused", 1, "SoftmaxV2", "SoftmaxV2"),
    ],
)
def test_an_operator_of_the_graph_engine_is_named_or_none_is(
    golden: str, token: int, operator: str, fused: str, short: Mapping[str, Path], tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(short["fused"], mine)
    FaultyDump(mine).inject(token, operator, scaled)
    right = [(fused, token)]
    code, found = compared(short[golden], mine, tmp_path / "out")
    assert (code, origins(found)) in [(1, right), (0, [])]
    code, found = compared(short[golden], mine, tmp_path / "out", "--deep")
    named = [each for each in origins(found) if each[0] not in IN_FLOAT16]
    assert (code, named) in [(1, right), (1, []), (3, [])]
    if code == 3:  # and it says why
        told = [each for each in found["problems"] if each.startswith(f"step {token}: ")]
        assert any("operations could not be recomputed: " in each for each in told)
