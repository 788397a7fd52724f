"""Composites of real programs are the modules that they were written as."""

from __future__ import annotations

import re

import pytest
from exported_models import Exported, exported

from ait_llm.program.calls import CASTS, Call, CallGraph
from ait_llm.program.composites import Composite, find_composites
from ait_llm.program.roles import Role

_CLASSES = {
    Role.NORM: r"Norm$",
    Role.LINEAR: r"^Linear$|^Conv1D$|Router$",
    Role.EMBEDDING: r"Embedding$",
    Role.ACTIVATION: r"SiLU|GELU|ReLU",
    Role.CORE: r"Attention$",
}
_FAMILIES = ("llama", "qwen3", "gemma2", "gpt2", "gpt_neox", "mixtral")
_WITH_SDPA = tuple(family for family in _FAMILIES if family != "gemma2")  # which has none


def _modules(program: Exported, role: Role) -> list[str]:
    """Paths of the modules of a role that ran."""
    return [
        path
        for path, name in program.classes.items()
        if re.search(_CLASSES[role], name) and "Rotary" not in name and program.calls_of(path)
    ]


def _owner(program: Exported, each: Composite) -> str:
    return program.owners[each.members[-1]]


def _check(program: Exported) -> None:
    """Each module is one composite, and no other composite has its role."""
    found = find_composites(program.graph)
    for role in _CLASSES:
        composites = [each for each in found if each.role is role]
        owners = [_owner(program, each) for each in composites]
        names = [[program.names[place] for place in each.members] for each in composites]
        assert sorted(owners) == sorted(_modules(program, role)), (role, names)
        for each, path in zip(composites, owners, strict=True):
            if role is Role.CORE:
                continue
            assert set(each.members) <= program.calls_of(path) | _casts(program, each)
            if not program.classes[path].endswith("Router"):  # which goes on to choose experts
                results = {program.graph.before(value) for value in program.result_of(path)}
                assert program.graph.before(each.result) in results, path
            if "weight" in each.operands:
                assert each.operands["weight"] == program.values[_placeholder(path, "weight")]


def _casts(program: Exported, each: Composite) -> set[int]:
    return {place for place in each.members if program.graph.kind(place) in CASTS}


def _placeholder(path: str, name: str) -> str:
    return f"p_{path}_{name}".replace(".", "_")


@pytest.mark.parametrize("family", _FAMILIES)
def test_every_module_is_one_composite_and_nothing_else_is(family: str) -> None:
    _check(exported(family))


@pytest.mark.parametrize("family", _WITH_SDPA)
def test_with_another_attention_they_are_the_same(family: str) -> None:
    _check(exported(family, "sdpa"))


@pytest.mark.parametrize("family", _FAMILIES)
def test_core_operators_make_the_same(family: str) -> None:
    _check(exported(family, decomposed=True))


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize(
    ("family", "turned"),
    [("llama", 4), ("qwen3", 4), ("gemma2", 4), ("gpt_neox", 4), ("mixtral", 4), ("gpt2", 0)],
)
def test_queries_and_keys_are_turned_in_every_layer(
    family: str, turned: int, decomposed: bool
) -> None:
    program = exported(family, decomposed=decomposed)
    found = [each for each in find_composites(program.graph) if each.role is Role.ROTARY]
    assert len(found) == turned
    cores = [each for each in find_composites(program.graph) if each.role is Role.CORE]
    graph = program.graph
    read = {
        graph.before(value, order=True)
        for core in cores
        for value in (core.source, core.operands["key"])
        if value is not None
    }
    assert {graph.before(each.result, order=True) for each in found} <= read


def test_definitions_are_those_of_the_modules() -> None:
    llama, gemma = exported("llama"), exported("gemma2")
    norms = [each for each in find_composites(llama.graph) if each.role is Role.NORM]
    assert {each.definition["eps"] for each in norms} == {1e-6}
    cores = [each for each in find_composites(llama.graph) if each.role is Role.CORE]
    assert [each.definition["scale"] for each in cores] == pytest.approx([8**-0.5] * 2)
    acts = [each for each in find_composites(gemma.graph) if each.role is Role.ACTIVATION]
    assert {each.definition["function"] for each in acts} <= {"gelu", "gelu tanh"}
    weights = [
        each.definition.get("weight")
        for each in find_composites(gemma.graph)
        if each.role is Role.NORM
    ]
    assert set(weights) == {"1 + weight"}
    layer = [each for each in find_composites(exported("gpt2").graph) if each.role is Role.NORM]
    assert {(each.definition["rms"], each.definition["eps"]) for each in layer} == {(False, 1e-5)}
    assert all("bias" in each.operands for each in layer)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_gated_activations_take_the_projection_of_gates(family: str) -> None:
    program = exported(family)
    found = [each for each in find_composites(program.graph) if each.role is Role.GATED]
    assert len(found) == 2
    for each in found:
        assert each.source is not None
        writers = [program.graph.writer(value) for value in (each.source, each.operands["up"])]
        owners = [program.owners[place] for place in writers if place is not None]
        assert [owner.rpartition(".")[2] for owner in owners] == ["gate_proj", "up_proj"]


@pytest.mark.parametrize("kind", ["embedding", "linear", "mm", "rms_norm", "silu", "softmax"])
def test_calls_that_made_nothing_are_no_composites(kind: str) -> None:
    """Such as the one in which the program failed."""
    assert find_composites(CallGraph([Call(kind, (1, 2, 3), ())])) == []


def test_a_bias_belongs_to_a_product_that_something_else_reads_too() -> None:
    product, weight, bias, total = 3, 2, 4, 5
    calls = [
        Call("mm", (1, weight), (product,)),
        Call("add", (product, bias), (total,)),
        Call("add", (total, product), (6,)),
    ]
    shapes = {1: (7, 32), weight: (32, 16), bias: (16,), product: (7, 16), total: (7, 16)}
    [found] = [
        each for each in find_composites(CallGraph(calls, shapes)) if "bias" in each.operands
    ]
    assert (found.role, found.result, found.members) == (Role.LINEAR, total, (0, 1))
