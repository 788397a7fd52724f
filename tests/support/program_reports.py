"""A report of two programs that are written otherwise: a decoder in modules, and one in operations
that compute queries, keys and values at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from report_builder import comparison, record, report

from ait_llm.core.comparison import Comparison, Origin, Report, TensorRecord, Verdict
from ait_llm.core.dataflow import Dataflow

_GOLDEN = ("", "input_layernorm", "self_attn", "self_attn.q_proj", "self_attn.k_proj",
           "self_attn.v_proj", "self_attn.o_proj")  # fmt: skip
_MINE = ("", "_0", "_1", "_2", "_3")
_TYPES = ("LayerOperation", "RmsNormOperation", "LinearOperation", "SelfAttentionOperation",
          "LinearOperation")  # fmt: skip


def programs_report(
    *, layers: int = 3, steps: int = 2, faulty: int = 1, flows: bool = True
) -> Report:
    """The attention of layer ``faulty`` fails, in all steps, and whatever reads it."""
    items: list[Comparison] = []
    edges: list[Dataflow] = []
    for step in range(steps):
        first = (step * (1 + layers * len(_GOLDEN)), step * layers * len(_MINE))
        for layer in range(layers):
            items += _layer(layer, step, first, faulty)
        alone = _golden(0, 0, step, first[0])
        root = replace(alone, op="root", op_id="0", order=first[0], name="intensor0", role="in")
        reason = "positions have none"
        items.append(Comparison(None, root, Verdict.SKIPPED, reason, comparable=False))
        edges += [_golden_flow(layers, first[0]), _my_flow(layers, first[1])]
    index = next(
        n for n, item in enumerate(items)
        if item.verdict is Verdict.FAIL and item.record.op_type == _TYPES[3]
    )  # fmt: skip
    guilty = items[index].record
    origin = Origin(
        guilty.op, guilty.op_id, guilty.op_type, guilty.step, guilty.device, guilty.pid,
        index=index, evidence="its inputs pass and its output fails",
    )  # fmt: skip
    made = report(*items, origins=(origin,), flows=tuple(edges) if flows else ())
    return replace(made, mine=replace(made.mine, steps=tuple(range(steps))))


def _layer(layer: int, step: int, first: tuple[int, int], faulty: int) -> list[Comparison]:
    def pair(theirs: int, ours: int, relation: str = "", name: str = "outtensor0") -> Comparison:
        fails = layer > faulty or (layer == faulty and ours not in (1, 2))
        golden = replace(_golden(layer, theirs, step, first[0]), name=name)
        mine = _mine(layer, ours, step, first[1])
        return comparison(
            0.3 if fails else 0.001, golden=golden, mine=mine, golden_view="", my_view=relation
        )

    return [
        pair(0, 0),
        pair(1, 1),
        pair(3, 2, "0:64 of axis 1"),
        pair(4, 2, "64:96 of axis 1"),
        pair(5, 2, "96:128 of axis 1"),
        pair(6, 3, name="intensor0"),
        pair(6, 4),
    ]


def _golden(layer: int, place: int, step: int, first: int) -> TensorRecord:
    path = ".".join(filter(None, (f"root.layers.{layer}", _GOLDEN[place])))
    order = first + 1 + layer * len(_GOLDEN) + place
    return record(path, op_id=str(order), op_type="", order=order, step=step, device=0, pid=7)


def _mine(layer: int, place: int, step: int, first: int) -> TensorRecord:
    op_id = f"{layer}{_MINE[place]}"
    order = first + layer * len(_MINE) + place
    return record(
        f"{_TYPES[place]}_{op_id}", op_id=op_id, op_type=_TYPES[place], order=order, step=step,
        device=0, pid=42,
    )  # fmt: skip


def _golden_flow(layers: int, first: int) -> Dataflow:
    """Attention itself, and the way from layer to layer, are code of the modules."""
    parents, reads, unwritten = [-1], [()], [False]
    for layer in range(layers):
        own = 1 + layer * len(_GOLDEN)
        parents += [0, own, own, own + 2, own + 2, own + 2, own + 2]
        before = (own - len(_GOLDEN),) if layer else ()
        reads += [before, before, (own + 1,), (own + 1,), (own + 1,), (own + 1,), ()]
        unwritten += [False, False, False, False, False, False, True]
    return _flow("golden", 7, first, parents, reads, unwritten)


def _my_flow(layers: int, first: int) -> Dataflow:
    parents, reads = [], []
    for layer in range(layers):
        own = layer * len(_MINE)
        parents += [-1, own, own, own, own]
        before = (own - 1,) if layer else ()
        reads += [before, before, (own + 1,), (own + 2,), (own + 3,)]
    return _flow("mine", 42, first, parents, reads, [False] * len(parents))


def _flow(
    side: Literal["golden", "mine"],
    pid: int,
    first: int,
    parents: list[int],
    reads: list[tuple[int, ...]],
    unwritten: list[bool],
) -> Dataflow:
    return Dataflow(side, 0, pid, first, tuple(parents), tuple(reads), tuple(unwritten))
