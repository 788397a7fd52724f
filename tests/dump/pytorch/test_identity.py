"""The identity of values in the ledger, against an oracle that keeps every tensor alive."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import Decoder, Returns, calls, capture, ids
from identity_oracle import agreement, claims
from torch import nn

from ait_llm import DumpConfig, register_hook
from ait_llm.dump.pytorch.identity import identity_of
from ait_llm.dumps.tensors import Identity
from ait_llm.dumps.torch_tables import read_identity

Run = Callable[[], None]
MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "grad": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
KINDS = {
    "data": {},
    "statistics": {"mode": "stats"},
    "operators": {"operators": True},
    "operator-statistics": {"operators": True, "mode": "stats"},
}


class Residual(nn.Module):
    """In-place residuals, a norm, a split projection, views, and memory that is used again."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.joined = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(4))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.drop = nn.Dropout(0.5)
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(x) * 1.0
        for norm, joined, out in zip(self.norms, self.joined, self.out, strict=True):
            a, b, c = joined(norm(x)).chunk(3, dim=-1)
            y = self.relu(a).reshape(a.shape) * b + c.transpose(0, 1).transpose(0, 1)
            x += self.drop(out(y))
            _ = torch.empty_like(x).fill_(2.0)  # memory that is free again
        return self.last(x[:, -1:]) * 1.0


class Cached(nn.Module):
    """A static cache that is written in place, and read in part."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.write = Returns(lambda cache, at, row: cache.index_copy_(0, at, row))
        self.read = Returns(lambda cache, length: cache[:length].sum(0, keepdim=True))
        self.project = nn.Linear(64, 64)
        self.cache: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.cache is None:
            self.cache = torch.zeros(300, 64)
        for step in range(3):
            self.write(self.cache, torch.tensor([step]), self.project(x))
            x = self.read(self.cache, step + 1) + x
        return x


def _twice(model: nn.Module, x: Any, calls: int = 2) -> Run:
    def run() -> None:
        for number in range(calls):
            model(x.clone() + number)

    return run


def _transformer(name: str) -> tuple[nn.Module, Run]:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
    torch.manual_seed(1)
    if name == "T5":
        config = transformers.T5Config(
            d_model=32,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            d_kv=8,
            vocab_size=64,
            decoder_start_token_id=0,
        )
        model = transformers.T5ForConditionalGeneration(config).eval()
    elif name == "Mixtral":
        config = transformers.MixtralConfig(
            **sizes, intermediate_size=48, num_key_value_heads=2, num_local_experts=4
        )
        model = transformers.MixtralForCausalLM(config).eval()
    elif name == "GPTNeoX":
        config = transformers.GPTNeoXConfig(**sizes, intermediate_size=48)
        model = transformers.GPTNeoXForCausalLM(config).eval()
    else:
        config = transformers.LlamaConfig(**sizes, intermediate_size=48, num_key_value_heads=2)
        model = transformers.LlamaForCausalLM(config).eval()
    cache = {"cache_implementation": "static"} if name == "Llama-static" else {}

    def run() -> None:
        model.generate(
            torch.arange(5, 12)[None],
            max_new_tokens=3,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
            **cache,
        )

    return model, run


def _program(name: str) -> tuple[nn.Module, Run]:
    if name == "residual":
        model: nn.Module = Residual().eval()
        return model, _twice(
            model, torch.randn(2, 16, 128, generator=torch.Generator().manual_seed(1))
        )
    if name == "cached":
        model = Cached().eval()
        return model, _twice(model, torch.ones(1, 64))
    if name == "decoder":
        model = Decoder().eval()
        return model, _twice(model, ids())
    return _transformer(name)


def captured(name: str, mode: str, kind: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        model, program = _program(name)
        config = DumpConfig(str(folder), token_range=list(range(9)), **KINDS[kind])
        with MODES[mode](), register_hook(model, config):
            program()

    return run


# Modes in which tensors count their changes, so that a capture can tell all.
_TELLS_ALL = {"grad", "no_grad"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", ["residual", "cached", "decoder", "Llama", "Llama-static", "Mixtral", "GPTNeoX", "T5"]
)
def test_identities_are_true(tmp_path: Path, name: str, mode: str, kind: str) -> None:
    if name == "residual" and mode == "grad":
        mode = "no_grad"  # autograd forbids its writes
    found = agreement(captured(name, mode, kind), tmp_path)
    assert not found.wrong
    assert not found.parted
    assert found.told > 30
    # In inference mode nothing counts writes; there, what is seen again is known by its bytes only.
    least = 1.0 if mode in _TELLS_ALL else 0.98 if kind.startswith("operator") else 0.75
    assert found.told >= least * found.tensors


def told(out: Path) -> dict[str, Any]:
    """Identities of the only step, by path and stem, with ``@n`` for later calls."""
    return {
        f"{path}{f'@{call}' if call else ''}/{stem}": claim
        for (_, path, call, stem), claim in claims(out).items()
    }


@pytest.mark.parametrize("inference", [False, True])
def test_what_changes_nothing_still_makes_a_value(tmp_path: Path, inference: bool) -> None:
    model = Returns(lambda x: x * 1.0)
    config = DumpConfig(str(tmp_path), operators=True)
    with register_hook(model, config), torch.inference_mode(inference):
        model(torch.ones(4, 4))
    found = told(tmp_path)
    assert found["root/input_0"] == found["root.aten.mul.Tensor/input_0"]
    assert found["root.aten.mul.Tensor/output"] == found["root/output"]
    assert found["root/input_0"][0] != found["root/output"][0]


@pytest.mark.parametrize("inference", [False, True])
def test_what_hands_its_input_on_makes_no_value(tmp_path: Path, inference: bool) -> None:
    model = nn.Sequential(nn.Dropout(), nn.Flatten(), nn.Identity()).eval()
    with register_hook(model, DumpConfig(str(tmp_path))), torch.inference_mode(inference):
        model(torch.ones(4, 2, 2))
    found = told(tmp_path)
    assert found["root.0/input_0"] == found["root.0/output"]
    if inference:  # nothing counts writes: only the same object is known by its bytes
        assert "root.1/output" not in found
    else:
        assert found["root.2/input_0"] == found["root.2/output"]
        assert found["root.1/output"] == (*found["root.1/input_0"][:3], (4, 1))


def test_parts_are_views_of_one_value(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 6), Returns(lambda x: x.split([2, 4], dim=-1)))
    capture(model, tmp_path, torch.ones(3, 4))
    found = told(tmp_path)
    storage, version, _, _ = found["root.0/output"]
    assert found["root.1/output_0"] == (storage, version, 0, (6, 1))
    assert found["root.1/output_1"] == (storage, version, 2, (6, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_makes_another_value_of_the_same_storage(tmp_path: Path, kind: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Identity())
    capture(model, tmp_path, torch.ones(3, 4), **KINDS[kind])
    found = told(tmp_path)
    storage, version, *place = found["root.1/input_0"]
    assert found["root.1/output"] == (storage, version + 1, *place)
    assert found["root.2/output"] == (storage, version + 1, *place)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind", ["data", "numpy"])
def test_a_change_behind_the_counter_makes_another_value(
    tmp_path: Path, behind: str, kind: str
) -> None:
    def change(x: torch.Tensor) -> torch.Tensor:
        if behind == "data":
            x.data.mul_(3.0)
        else:
            x.numpy()[...] *= 3.0
        return x

    model = nn.Sequential(nn.Linear(4, 4), Returns(change))
    capture(model, tmp_path, torch.ones(3, 4), **KINDS[kind])
    found = told(tmp_path)
    assert found["root.1/input_0"][0] == found["root.1/output"][0]
    assert found["root.1/input_0"][1] < found["root.1/output"][1]


def test_statistics_that_training_updates_are_written(tmp_path: Path) -> None:
    model = nn.BatchNorm1d(4).train()
    seen = nn.Sequential(model, Returns(lambda x: (x, model.running_mean)))
    config = DumpConfig(str(tmp_path), operators=True)
    with register_hook(seen, config), torch.no_grad():
        seen(torch.randn(8, 4))
    versions = {
        claim[1]
        for name, claim in told(tmp_path).items()
        if ("batch_norm" in name and name.endswith("input_3")) or name == "root.1/output_1"
    }
    assert versions == {0, 1}


def test_what_another_model_made_is_known_in_the_next(tmp_path: Path) -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    config = DumpConfig(str(tmp_path))
    with register_hook(first, config), register_hook(second, config), torch.no_grad():
        second(first(torch.ones(2, 4)))
    found = told(tmp_path)
    assert found["root/output"] == found["root1/input_0"]
    assert found["root/input_0"][0] != found["root/output"][0]


def test_models_that_call_each_other_count_a_write_once(tmp_path: Path) -> None:
    inner = nn.ReLU(inplace=True)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return inner(self.first(x)) * 1.0

    outer = Outer()
    config = DumpConfig(str(tmp_path), operators=True)
    with register_hook(outer, config), register_hook(inner, config), torch.no_grad():
        outer(torch.ones(2, 4))
    found = told(tmp_path)
    storage, version, *place = found["root.first/output"]
    assert found["root1.aten.relu_.default/output"] == (storage, version + 1, *place)
    assert found["root1/output"] == found["root.aten.mul.Tensor/input_0"]
    assert found["root1/output"] == (storage, version + 1, *place)


@pytest.mark.parametrize("kind", ["data", "operators"])
def test_threads_do_not_share_values(tmp_path: Path, kind: str) -> None:
    models = [Residual().eval() for _ in range(3)]
    config = DumpConfig(str(tmp_path), token_range=list(range(99)), **KINDS[kind])
    handles = [register_hook(model, config) for model in models]

    def run(model: nn.Module) -> None:
        with torch.no_grad():
            for number in range(5):
                model(torch.full((1, 4, 128), float(number)))

    threads = [threading.Thread(target=run, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for handle in handles:
        handle.remove()
    owners: dict[int, set[str]] = {}
    for (_, path, _, _), claim in claims(tmp_path).items():
        owners.setdefault(claim[0], set()).add(path.partition(".")[0])
    assert len(owners) > 100
    assert all(len(roots) == 1 for roots in owners.values())


def test_conjugates_and_wrappers_have_no_identity(tmp_path: Path) -> None:
    x = torch.view_as_complex(torch.randn(4, 2))
    model = Returns(lambda x: (x, x.conj(), x.conj().imag))
    capture(model, tmp_path, x)
    assert set(told(tmp_path)) == {"root/input_0", "root/output_0"}


def test_nothing_lives_longer_for_being_known(tmp_path: Path) -> None:
    storages = []

    def watch(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        storages.append(weakref.ref(y.untyped_storage()))
        return y

    model = nn.Sequential(Returns(watch), Returns(watch))
    with register_hook(model, DumpConfig(str(tmp_path), mode="stats")), torch.no_grad():
        model(torch.ones(300, 300))
        assert [each() for each in storages] == [None, None]


def test_the_reader_gives_identities(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 6), Returns(lambda x: x[:, 1:]))
    dump = capture(model, tmp_path, torch.ones(3, 4), operators=True)
    found = calls(dump, 0)
    [made] = found["root.0"].outputs
    [part] = found["root.1"].outputs
    assert made.identity is not None
    assert part.identity == dataclasses.replace(made.identity, offset=1)
    linear = found["root.0.aten.addmm.default"]
    assert linear.weights["input_2"]["version"] == 0
    assert linear.weights["input_0"]["storage"] != linear.weights["input_2"]["storage"]


@pytest.mark.parametrize(
    "entry",
    [[1, 0, 2], [1, 0, 2, 3], [1, None, 2, []], [1, 0, 2, ["3"]], {}, None, [True, 0, 0, []]],
)
def test_what_is_no_identity_is_left_out(entry: object) -> None:
    assert read_identity([1, 0, 2, [3, 1]]) == Identity(1, 0, 2, (3, 1))
    assert read_identity(entry) is None


def test_where_marks_do_not_last_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ait_llm.dump.pytorch.identity.MARKS_LAST", False)
    capture(nn.Linear(4, 4), tmp_path, torch.ones(2, 4))
    assert not told(tmp_path)


def test_copies_of_a_marked_tensor_are_other_values() -> None:
    made = torch.ones(4, 4)
    first = identity_of(made)
    assert first is not None
    copies = [made.clone(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    numbers = [identity[0] for each in copies if (identity := identity_of(each)) is not None]
    assert len({first[0], *numbers}) == 4
