"""What decides what a module computes: recorded in the tree, read with each call."""

from __future__ import annotations

import functools
import json
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import Returns, calls, capture
from torch import nn

from ait_llm.dump.pytorch.definition import Definitions


def definition(module: nn.Module) -> dict[str, Any]:
    found = Definitions().of(module)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.LayerNorm(8, eps=1e-6), {"eps": 1e-6, "normalized_shape": [8], "bias": True}),
        (nn.Linear(4, 6, bias=False), {"in_features": 4, "out_features": 6, "bias": False}),
        (nn.GELU(approximate="tanh"), {"approximate": "tanh"}),
        (
            nn.Conv2d(3, 6, 5, stride=2, padding=1, groups=3),
            {"kernel_size": [5, 5], "stride": [2, 2], "padding": [1, 1], "groups": 3},
        ),
        (nn.MultiheadAttention(8, 2), {"num_heads": 2, "head_dim": 4, "embed_dim": 8}),
        (nn.Dropout(0.25), {"p": 0.25, "inplace": False}),
    ],
)
def test_attributes_of_torch_modules(module: nn.Module, expected: dict[str, Any]) -> None:
    found = definition(module)
    assert {name: found.get(name) for name in expected} == expected
    assert "training" not in found


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return x


class Odd(nn.Module):
    """Attributes of all sorts."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = float("inf")
        self.dtype = torch.bfloat16
        self.act = functools.partial(_gelu)
        self.sin = torch.sin
        self.rope = {"rope_type": "llama3", "factor": 8.0, "tensor": torch.ones(2)}
        self.table = torch.ones(3)
        self.tables = [torch.ones(3)]
        self.many = list(range(1000))
        self.text = "x" * 1000
        self.huge = 1 << 100
        self._secret = 3
        self.quant_method = nn.Identity()
        self.loop: list[Any] = []
        self.loop.append(self.loop)

    @property
    def computes(self) -> int:
        raise AssertionError("properties are not asked")


def test_only_plain_public_attributes_are_told() -> None:
    assert definition(Odd()) == {
        "scale": "inf",
        "dtype": "bfloat16",
        "act": "_gelu",
        "sin": "sin",
        "rope": {"rope_type": "llama3", "factor": 8.0},
        "text": "x" * 200,
    }


def test_objects_that_quantise_are_told_by_their_class() -> None:
    module = nn.Identity()
    module.quant_method = object()
    assert definition(module) == {"quant_method": "object"}


class Kernel:
    """What computes in a module's place, as engines have it."""

    def __init__(self) -> None:
        self.scale = 0.125
        self.sliding_window = (31, 0)
        self.alibi_slopes = None
        self.sinks = torch.ones(4)
        self._secret = 3


class Paged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.impl = Kernel()


def test_what_computes_in_the_place_of_a_module_tells_its_own_attributes() -> None:
    assert definition(Paged()) == {
        "impl": "Kernel",
        "impl.scale": 0.125,
        "impl.sliding_window": [31, 0],
        "impl.alibi_slopes": None,
    }


def test_a_method_that_is_made_of_a_function_in_part_is_told_by_its_name() -> None:
    """As torchao does with ``extra_repr`` of the modules that it quantises."""
    module = nn.Identity()
    module.shown = types.MethodType(functools.partial(_gelu), module)  # type: ignore[assignment]
    assert definition(module) == {"shown": "_gelu"}


class Wrapped(torch.Tensor):
    """A weight that is stored in another form, as those of torchao."""

    act_quant_kwargs: object

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> Wrapped:
        made: Wrapped = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)
        made.qdata, made.block_size, made.act_quant_kwargs = data, (1, 4), object()
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["qdata"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is torch.ops.aten.detach.default else NotImplemented


def test_how_a_weight_is_stored_is_told_and_whether_inputs_are_quantised_for_it() -> None:
    module = nn.Linear(4, 2, bias=False)
    weight = nn.Parameter(Wrapped(torch.ones(2, 4, dtype=torch.int8)), requires_grad=False)
    module.register_parameter("weight", weight)
    told = definition(module)
    assert told["weight.type"] == "Wrapped"
    assert told["weight.block_size"] == [1, 4]
    assert told["weight.act_quant_kwargs"] == "object"


def test_a_shared_configuration_is_told_once() -> None:
    class Config:
        def __init__(self) -> None:
            self.rope_theta = 10000.0
            self.hidden_act = "silu"
            self._private = 1

    outer, inner = nn.Identity(), nn.Identity()
    outer.config = inner.config = Config()  # type: ignore[assignment]
    inner.layer_idx = 3  # type: ignore[assignment]
    definitions = Definitions()
    assert definitions.of(outer) == {"config.rope_theta": 10000.0, "config.hidden_act": "silu"}
    assert definitions.of(inner) == {"layer_idx": 3}


def test_the_reader_gives_attributes_and_arguments(tmp_path: Path) -> None:
    model = Returns(lambda x, scale, mask=None: nn.functional.softmax(x * scale, dim=-1))
    model.layer_idx = 7  # type: ignore[assignment]
    dump = capture(model, tmp_path, torch.ones(2, 3), 0.5, operators=True)
    found = calls(dump, 0)
    assert dict(found["root"].definition) == {"layer_idx": 7, "1": 0.5}
    assert dict(found["root.aten.mul.Tensor"].definition) == {"1": 0.5}


def test_norms_of_transformers_tell_what_they_add(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=32,
        rms_norm_eps=3e-5,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    found = calls(capture(model, tmp_path, torch.arange(4)[None]), 0)
    assert found["root.model.norm"].definition["variance_epsilon"] == 3e-5
    attention = found["root.model.layers.1.self_attn"].definition
    assert (attention["layer_idx"], attention["head_dim"], attention["scaling"]) == (1, 4, 0.5)
    assert attention["is_causal"] is True
    assert found["root"].definition["config.num_key_value_heads"] == 2
    assert not any(name.startswith("config.") for name in attention)


class Parallel:
    def __init__(self) -> None:
        self.tp_size = 2


class Shared:
    def __init__(self) -> None:
        self.skip_final_all_reduce = True
        self.moe_parallel_config = Parallel()


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.moe_config = Shared()
        self.experts_cls = Parallel
        self.router = Parallel()


def test_how_an_engine_shares_its_experts_out_is_told() -> None:
    assert definition(Experts()) == {
        "experts_cls": "Parallel",
        "router": "Parallel",
        "moe_config.skip_final_all_reduce": True,
        "moe_config.moe_parallel_config.tp_size": 2,
    }


class MatmulLtState:
    def __init__(self) -> None:
        self.threshold = 6.0
        self.CB = torch.ones(1)


def test_of_a_state_only_that_of_a_known_class_is_told() -> None:
    module = nn.Identity()
    module.state = MatmulLtState()
    assert definition(module) == {"state.threshold": 6.0}
    module.state = Parallel()
    assert definition(module) == {}
