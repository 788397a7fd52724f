"""What a module returns is captured with its value, or named as not captured."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import Returns, calls, capture, ledger_lines, opened, values
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.core import DType

X = torch.arange(6.0).reshape(2, 3)
Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    parts: tuple[torch.Tensor, ...]
    note: str = "fine"


class Opaque:
    """Has nothing that a capture could look at."""


class Rude(dict[str, Any]):
    """A mapping that cannot be listed."""

    def items(self) -> Any:
        raise RuntimeError("no\nlisting")


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x, ["output"]),
        (lambda x: (x, [x + 1, x + 2]), ["output_0", "output_1_0", "output_1_1"]),
        (lambda x: {"logits": x, "hidden": (x,)}, ["output_logits", "output_hidden_0"]),
        (lambda x: Result(x, (x, x)), ["output_loss", "output_parts_0", "output_parts_1"]),
        (lambda x: Pair(x, x), ["output_0", "output_1"]),
        (lambda x: collections.UserDict(a=x), ["output_a"]),
        (lambda x: torch.max(x, 0), ["output_0", "output_1"]),
        (lambda x: {"a/b": x, "a-b": x + 1}, ["output_a-b", "output_a-b-2"]),
        (lambda x: {1: x, "1": x + 1}, ["output_1", "output_1-2"]),
        (lambda x: {"k" * 400: x}, ["output_" + "k" * 173]),
    ],
)
def test_every_tensor_in_a_container_has_a_file(
    tmp_path: Path, function: Callable[[torch.Tensor], Any], names: list[str]
) -> None:
    dump = capture(Returns(function), tmp_path, X, tensor_part=1)
    found = values(calls(dump, 0)["root"])
    assert sorted(found) == sorted(names)
    assert torch.equal(
        found[names[0]], X.amax(0) if names[0] == "output_0" and len(found[names[0]]) == 3 else X
    )


def test_model_output_is_captured_by_field(tmp_path: Path) -> None:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    dump = capture(Returns(lambda x: CausalLMOutputWithPast(logits=x)), tmp_path, X, tensor_part=1)
    assert list(values(calls(dump, 0)["root"])) == ["output_logits"]


def test_keyword_arguments_are_captured_by_name_and_plain_values_kept(tmp_path: Path) -> None:
    model = Returns(lambda x, *, mask, scale, kind: x)
    with register_hook(model, DumpConfig(str(tmp_path))):
        model(X, mask=X > 1, scale=float("nan"), kind=torch.float16)
    call = calls(opened(tmp_path), 0)["root"]
    assert torch.equal(values(call)["input_mask"], X > 1)
    assert call.params == {"input_scale": "nan", "input_kind": "torch.float16"}


def _numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: (x, _numbers()), "object of type builtins.generator"),
        (lambda x: (x, Opaque()), "Opaque"),
        (lambda x: (x, {x}), "object of type builtins.set"),
        (lambda x: (x, x.to("meta")), "on the meta device, shape (2, 3), torch.float32"),
    ],
)
def test_what_cannot_be_captured_is_named(
    tmp_path: Path, function: Callable[[torch.Tensor], Any], reason: str
) -> None:
    call = calls(capture(Returns(function), tmp_path, X, tensor_part=1), 0)["root"]
    assert torch.equal(values(call)["output_0"], X)
    [missed] = call.not_captured
    assert missed["name"] == "output_1"
    assert reason in missed["reason"]


def test_a_generator_is_not_consumed(tmp_path: Path) -> None:
    model = Returns(lambda x: _numbers())
    with register_hook(model, DumpConfig(str(tmp_path))):
        assert list(model(X)) == [1]


def test_containers_that_raise_or_contain_themselves_do_no_harm(tmp_path: Path) -> None:
    loop: list[Any] = [X]
    loop.append(loop)
    model = Returns(lambda x: {"rude": Rude(a=x), "loop": loop})
    call = calls(capture(model, tmp_path, X, tensor_part=1), 0)["root"]
    reasons = {entry["reason"] for entry in call.not_captured}
    assert any("no" in reason for reason in reasons)
    model = Returns(lambda x: loop)
    call = calls(capture(model, tmp_path / "2", X, tensor_part=1), 0)["root"]
    assert call.not_captured[0]["reason"] == "refers to itself"


def test_a_fake_tensor_is_named(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    fake = mode.from_tensor(X)
    call = calls(capture(Returns(lambda x: fake), tmp_path, X, tensor_part=1), 0)["root"]
    assert "fake tensor" in call.not_captured[0]["reason"]
    assert ledger_lines(tmp_path)[1]["state"] == "dropped"


DENSE = {
    "bool": torch.tensor([[True, False]]),
    "bfloat16": X.bfloat16(),
    "float16": X.half(),
    "float8_e4m3fn": X.to(torch.float8_e4m3fn),
    "float8_e5m2": X.to(torch.float8_e5m2),
    "complex64": torch.complex(X, -X),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
    "uint32": torch.tensor([1, 2**32 - 1], dtype=torch.uint32),
    "0-d": torch.tensor(3.5),
    "empty": torch.empty(0, 4),
    "transposed": X.t(),
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 4),
    "strided": torch.arange(20.0)[3:15:2],
    "conjugate": torch.complex(X, X).conj(),
    "negative view": torch.complex(X, X).conj().imag,
    "needs gradient": X.clone().requires_grad_(),
    "nan": torch.tensor([float("nan"), float("-inf")]),
}


@pytest.mark.parametrize("name", DENSE)
def test_dense_tensors_keep_type_shape_and_bits(tmp_path: Path, name: str) -> None:
    tensor = DENSE[name]
    call = calls(capture(Returns(lambda: tensor), tmp_path), 0)["root"]
    [record] = call.outputs
    loaded = record.torch()
    assert loaded.dtype == tensor.dtype
    assert record.shape == tuple(tensor.shape)
    assert record.dtype is next(m for m in DType if f"torch.{m.torch_name}" == str(tensor.dtype))
    expected = tensor.detach().resolve_conj().resolve_neg().contiguous()
    assert (
        loaded.reshape(-1).view(torch.uint8).tolist()
        == expected.reshape(-1).view(torch.uint8).tolist()
        if tensor.numel()
        else loaded.shape == tensor.shape
    )
    plain = torch.load(record.path, weights_only=True)
    assert plain.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def _coo() -> torch.Tensor:
    return torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), check_invariants=True)


def _jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([X[0], X[1, :2]], layout=torch.jagged)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "parts", "note"),
    [
        (_coo, {"output_indices": [[0, 1], [2, 0]], "output_values": [3.0, 4.0]}, "sparse_coo"),
        (
            lambda: _coo().to_sparse_csr(),
            {
                "output_crow_indices": [0, 1, 2],
                "output_col_indices": [2, 0],
                "output_values": [3.0, 4.0],
            },
            "sparse_csr tensor, shape (2, 3)",
        ),
        (
            _jagged,
            {"output_values": [0.0, 1.0, 2.0, 3.0, 4.0], "output_offsets": [0, 3, 5]},
            "NestedTensor",
        ),
        (
            lambda: torch.quantize_per_tensor(X, 0.5, 1, torch.quint8),
            {"output_integers": [[1, 3, 5], [7, 9, 11]]},
            "scale 0.5, zero point 1",
        ),
    ],
)
def test_other_layouts_are_captured_as_dense_parts(
    tmp_path: Path, make: Callable[[], torch.Tensor], parts: dict[str, Any], note: str
) -> None:
    call = calls(capture(Returns(make), tmp_path), 0)["root"]
    found = {name: tensor.tolist() for name, tensor in values(call).items()}
    assert {name: found[name] for name in parts} == parts
    line = next(line for line in ledger_lines(tmp_path) if line["kind"] == "op")
    assert note in line["notes"]["output"]


def test_a_parameter_that_is_returned_is_named_not_copied(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(X.clone())

        def forward(self) -> torch.Tensor:
            return self.weight.t()

    call = calls(capture(Tied(), tmp_path), 0)["root"]
    weight = {"name": "root.weight", "shape": [3, 2], "stride": [1, 3], "offset": 0}
    assert call.weights == {"output": call.weights["output"] | weight}


def test_memory_of_a_replaced_parameter_is_not_taken_for_it(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    kept = model.weight.data
    with register_hook(model, DumpConfig(str(tmp_path))), torch.no_grad():
        model.weight.data = torch.ones(3, 3)
        model(kept)
    call = calls(opened(tmp_path), 0)["root"]
    assert torch.equal(values(call)["input_0"], kept)
    assert not call.weights


def test_a_distributed_tensor_gives_its_local_shard(tmp_path: Path) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        tensor = distribute_tensor(X, mesh, [Shard(0)])
        call = calls(capture(Returns(lambda: tensor), tmp_path), 0)["root"]
    finally:
        dist.destroy_process_group()
    assert torch.equal(values(call)["output"], X)
    line = next(line for line in ledger_lines(tmp_path) if line["kind"] == "op")
    assert "Shard(dim=0)" in line["notes"]["output"] or "S(0)" in line["notes"]["output"]


def test_a_subclass_without_parts_is_named(tmp_path: Path) -> None:
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Wrapper:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape)  # type: ignore[attr-defined,no-any-return]

        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return args[0] if "detach" in str(func) else NotImplemented

    wrapped = Wrapper(X)
    call = calls(capture(Returns(lambda: wrapped), tmp_path), 0)["root"]
    assert "does not say what it consists of" in call.not_captured[0]["reason"]


def test_very_many_values_keep_the_ledger_readable(tmp_path: Path) -> None:
    call = calls(capture(Returns(lambda: list(range(100_000))), tmp_path), 0)["root"]
    assert len(call.params) == 500
    line = next(line for line in ledger_lines(tmp_path) if line["kind"] == "op")
    assert line["left_out"] == 99_500
