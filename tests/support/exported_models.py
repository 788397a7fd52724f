"""Real programs as graphs of operators, with the modules that their operators belong to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers
from torch.fx import Node

from ait_llm.program.calls import Call, CallGraph
from ait_llm.program.roles_fx import kind_of

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
_NEOX = {key: value for key, value in _SIZES.items() if key != "num_key_value_heads"}
CONFIGS: Mapping[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**_SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**_SIZES, head_dim=8),
    "gemma2": lambda: transformers.Gemma2Config(**_SIZES, head_dim=8, query_pre_attn_scalar=8),
    "gpt2": lambda: transformers.GPT2Config(
        n_embd=32,
        n_layer=2,
        n_head=4,
        vocab_size=64,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**_NEOX, rotary_pct=0.5),
    "mixtral": lambda: transformers.MixtralConfig(**_SIZES, num_local_experts=4),
}


@dataclass(frozen=True)
class Exported:
    """A program.

    Attributes:
        graph: its operators.
        names: the FX node of each call.
        owners: the module that each call belongs to, the innermost by dotted path.
        classes: class of each module by path.
        values: number of the value of each node.
    """

    graph: CallGraph
    names: tuple[str, ...]
    owners: tuple[str, ...]
    classes: Mapping[str, str]
    values: Mapping[str, int]

    def calls_of(self, path: str) -> set[int]:
        """Calls within a module."""
        inner = f"{path}."
        owned = enumerate(self.owners)
        return {place for place, each in owned if each == path or each.startswith(inner)}

    def result_of(self, path: str) -> set[int]:
        """What a module hands on: values that calls outside of it read."""
        inside = self.calls_of(path)
        made = {value for place in inside for value in self.graph.calls[place].outputs}
        return {
            value
            for value in made
            if not self.graph.readers(value) or not inside.issuperset(self.graph.readers(value))
        }


@cache
def exported(family: str, attention: str = "eager", *, decomposed: bool = False) -> Exported:
    """A small model of a family as ``torch.export`` sees it, or with core ATen operators only."""
    config = CONFIGS[family]()
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    ids = torch.arange(7)[None]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about itself
        program = torch.export.export(
            model.eval(), (), {"input_ids": ids, "use_cache": False}, strict=False
        )
        if decomposed:
            program = program.run_decompositions()
    classes = {path: type(module).__name__ for path, module in model.named_modules()}
    return _graph(program.graph.nodes, classes)


def _graph(nodes: Iterable[Node], classes: Mapping[str, str]) -> Exported:
    values: dict[str, int] = {}
    elements: dict[tuple[str, int], int] = {}
    shapes: dict[int, tuple[int, ...]] = {}
    calls, names, owners = [], [], []

    def number(node: Node, index: int | None = None) -> int:
        key = node.name if index is None else f"{node.name}[{index}]"
        found = values.setdefault(key, len(values))
        value = node.meta.get("val")
        if index is not None:
            value = value[index]
        if isinstance(value, torch.Tensor):
            shapes[found] = tuple(int(length) for length in value.shape)
        return found

    for node in nodes:
        if node.op != "call_function":
            continue
        target = str(node.target)
        if target.startswith("<built-in function getitem"):
            source, index = node.args
            assert isinstance(source, Node)
            assert isinstance(index, int)
            values[node.name] = number(source, index)
            elements[source.name, index] = values[node.name]
            continue
        if not isinstance(node.meta.get("val"), torch.Tensor | tuple | list):
            continue
        inputs: list[int] = []
        numbers: list[float] = []
        for argument in torch.utils._pytree.tree_leaves((node.args, node.kwargs)):
            if isinstance(argument, Node):
                inputs.append(number(argument))
            elif isinstance(argument, int | float) and not isinstance(argument, bool):
                numbers.append(float(argument))
        value = node.meta["val"]
        several = isinstance(value, tuple | list)
        outputs = [number(node, i) for i in range(len(value))] if several else [number(node)]
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        calls.append(Call(kind_of(target), tuple(inputs), tuple(outputs), tuple(numbers)))
        names.append(node.name)
        owners.append(stack[-1][0] if stack else "")
    return Exported(CallGraph(calls, shapes), tuple(names), tuple(owners), classes, values)
