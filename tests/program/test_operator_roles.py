"""Roles of single operators, on the operators of recorded dumps."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pytest
from msprobe_samples import sample

from ait_llm.dumps import open_dump
from ait_llm.program.ge.graph import graphs_of
from ait_llm.program.roles import Role
from ait_llm.program.roles_api import api_role
from ait_llm.program.roles_fx import fx_role, kind_of
from ait_llm.program.roles_ge import ge_role, numbers_of

_DATA = Path(__file__).parents[1] / "data"
# Of the recorded two-layer decoder, in prefill.
_EXPECTED = {Role.EMBEDDING: 1, Role.SOFTMAX: 2, Role.ACTIVATION: 2, Role.TOPK: 1}


def _unpacked(folder: Path, archive: str) -> Path:
    with tarfile.open(_DATA / archive) as file:
        file.extractall(folder, filter="data")
    [found] = folder.iterdir()
    return found


def test_nodes_of_a_recorded_fx_dump(tmp_path: Path) -> None:
    root = _unpacked(tmp_path, "torchair/fx_fp16_dynamic.tar.xz")
    nodes = [each for each in open_dump(root).operations() if "/graph_1/" in str(each.path)]
    found = Counter(fx_role(each.type) for each in nodes)
    assert {role: found[role] for role in _EXPECTED} == _EXPECTED
    assert found[Role.LINEAR] == 2 + 9 + 4  # addmm, mm, and bmm of two attentions


def test_operators_of_a_recorded_graph(tmp_path: Path) -> None:
    root = _unpacked(tmp_path, "ge_dump/ge_run_fused.tar.xz")
    graphs, _ = graphs_of(open_dump(root).graph_files)  # type: ignore[attr-defined]
    [graph] = [each for each in graphs if each.number == 1]
    found = Counter(ge_role(op.type, op.attrs) for op in graph.graph.ops)
    assert {role: found[role] for role in _EXPECTED if role is not Role.EMBEDDING} == {
        role: count for role, count in _EXPECTED.items() if role is not Role.EMBEDDING
    }
    # of token ids; a row of the logits and a length are gathered, too
    assert found[Role.EMBEDDING] == 3
    assert found[Role.LINEAR] == 2 + 9 + 4
    scales = [numbers_of(op.attrs) for op in graph.graph.ops if op.type == "Muls"]
    assert scales == [pytest.approx((8**-0.5,), rel=1e-6)] * 2


@pytest.mark.parametrize(
    ("operator", "role"),
    [
        ("RmsNorm", Role.NORM),
        ("AddRmsNorm", Role.NORM),
        ("LayerNormV4", Role.NORM),
        ("RotaryPositionEmbedding", Role.ROTARY),
        ("ApplyRotaryPosEmb", Role.ROTARY),
        ("IncreFlashAttention", Role.CORE),
        ("PromptFlashAttention", Role.CORE),
        ("SwiGlu", Role.GATED),
        ("TransData", Role.OPERATOR),
        ("MoeGatingTopKSoftmax", Role.OPERATOR),
    ],
)
def test_fused_operators_of_the_engine(operator: str, role: Role) -> None:
    assert ge_role(operator, {}) is role


def test_calls_of_a_recorded_api_dump() -> None:
    calls = [
        each
        for each in open_dump(sample("L1_tensor") / "golden").operations()
        if each.name.endswith(".forward")
    ]
    found = Counter(api_role(each.name.partition(".")[0], each.type) for each in calls)
    assert found[Role.EMBEDDING] == 1
    assert found[Role.LINEAR] == 5 + 2  # five projections, two products of attention
    assert {Role.ADD, Role.MUL} <= set(found)


def test_modules_of_a_recorded_api_dump() -> None:
    calls = open_dump(sample("L0_stat") / "golden").operations()
    roles = {each.type: api_role(each.name.partition(".")[0], each.type) for each in calls}
    assert roles["Linear"] is Role.LINEAR
    assert roles["RMSNorm"] is Role.NORM
    assert roles["Embedding"] is Role.EMBEDDING
    assert roles["Block"] is Role.OPERATOR


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("aten.add_.Tensor", "add"),
        ("aten._softmax.default", "softmax"),
        ("aten._to_copy.default", "_to_copy"),
        ("aten.native_layer_norm.default", "layer_norm"),
    ],
)
def test_spellings_of_one_operator(target: str, kind: str) -> None:
    assert kind_of(target) == kind
