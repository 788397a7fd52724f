"""Operations run on CPU tensors through the native runtime, against torch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

import ait_llm.hostatb as torch_atb
from ait_llm.core import OpId
from ait_llm.errors import OperationError, UnknownNameError, UsageError
from ait_llm.hostatb.context import current_context, current_device, default_device

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("native_library")]
Elewise = torch_atb.ElewiseParam.ElewiseType
Activation = torch_atb.ActivationType


def run(param: object, *inputs: Tensor) -> list[Tensor]:
    return torch_atb.Operation(param).forward(list(inputs))  # type: ignore[arg-type]


def randn(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), rtol=4e-3, atol=4e-3)


X = randn(4, 32)
Y = randn(4, 32, seed=1)


@pytest.mark.parametrize(
    ("param", "inputs", "expected"),
    [
        (torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), (X, Y), lambda x, y: x + y),
        (torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_MUL), (X, Y), lambda x, y: x * y),
        (torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_COS), (X,), torch.cos),
        (
            torch_atb.ElewiseParam(
                elewise_type=Elewise.ELEWISE_MULS,
                muls_param=torch_atb.ElewiseParam.MulsParam(var_attr=0.5),
            ),
            (X,),
            lambda x: x * 0.5,
        ),
        (
            torch_atb.ElewiseParam(
                elewise_type=Elewise.ELEWISE_CAST, out_tensor_type=torch_atb.ACL_FLOAT
            ),
            (X,),
            lambda x: x,
        ),
        (
            torch_atb.ActivationParam(activation_type=Activation.ACTIVATION_SWISH),
            (X,),
            functional.silu,
        ),
        (
            torch_atb.ActivationParam(activation_type=Activation.ACTIVATION_SWIGLU_FORWARD),
            (randn(4, 256),),
            lambda x: functional.silu(x[:, :128]) * x[:, 128:],
        ),
        (
            torch_atb.LinearParam(has_bias=False),
            (X, randn(16, 32, seed=2)),
            functional.linear,
        ),
        (
            torch_atb.LinearParam(),
            (X, randn(16, 32, seed=2), randn(1, 16, seed=3)),
            lambda x, w, b: functional.linear(x, w) + b,
        ),
        (
            torch_atb.LinearParam(has_bias=False, transpose_b=False),
            (randn(2, 4, 32), randn(32, 16, seed=2)),
            torch.matmul,
        ),
        (
            torch_atb.RmsNormParam(layer_type=1),
            (X, Y[0]),
            lambda x, g: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * g,
        ),
        (
            torch_atb.LayerNormParam(
                layer_type=1,
                norm_param=torch_atb.LayerNormParam.NormParam(
                    begin_norm_axis=1, begin_params_axis=1
                ),
            ),
            (X, Y[0], Y[1]),
            lambda x, g, b: functional.layer_norm(x, (32,), g, b, 1e-5),
        ),
        (torch_atb.SoftmaxParam(axes=[-1]), (X,), lambda x: x.softmax(-1)),
        (torch_atb.TransposeParam(perm=[1, 0]), (X,), lambda x: x.T),
        (torch_atb.ConcatParam(concat_dim=0), (X, Y), lambda x, y: torch.cat([x, y])),
        (torch_atb.SliceParam(offsets=[1, -8], size=[2, 8]), (X,), lambda x: x[1:3, -8:]),
        (
            torch_atb.GatherParam(),
            (randn(10, 8), torch.tensor([3, 1, 9])),
            lambda x, index: x[index],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch_atb.Operation) else None,
)
def test_operation_equals_torch(
    param: object, inputs: tuple[Tensor, ...], expected: Callable[..., Tensor]
) -> None:
    (output,) = run(param, *inputs)
    wide = [tensor.float() if tensor.is_floating_point() else tensor for tensor in inputs]
    close(output, expected(*wide))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_output_has_the_inferred_dtype(dtype: torch.dtype) -> None:
    x = randn(4, 32, dtype=dtype)
    (output,) = run(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), x, x)
    assert output.dtype == dtype
    assert torch.equal(output, x + x)


def test_sort_returns_the_largest_values_and_their_places() -> None:
    x = randn(4, 32)
    values, indices = run(torch_atb.SortParam(num=[5]), x)
    assert torch.equal(values, x.float().topk(5).values.half())
    assert indices.dtype == torch.int32
    assert torch.equal(x.gather(1, indices.long()), values)


@pytest.mark.parametrize("axis", [[0], [1], [0, 2]])
def test_reduce_sums_over_its_axes(axis: list[int]) -> None:
    x = randn(4, 32) if max(axis) < 2 else randn(4, 32, 3)
    kinds = torch_atb.ReduceParam.ReduceType
    (output,) = run(torch_atb.ReduceParam(reduce_type=kinds.REDUCE_SUM, axis=axis), x)
    close(output, x.float().sum(axis))


def test_sampling_with_a_tiny_share_takes_the_likeliest_token() -> None:
    probabilities = randn(4, 32).float().softmax(-1).half()
    share = torch.full((4, 1), 1e-3, dtype=torch.float16)
    tokens, chosen = run(torch_atb.TopkToppSamplingParam(topk=8), probabilities, share)
    assert torch.equal(tokens.flatten().long(), probabilities.float().argmax(-1))
    assert torch.equal(chosen.flatten(), probabilities.max(-1).values)


def test_operation_describes_itself() -> None:
    operation = torch_atb.Operation(torch_atb.SplitParam(split_num=3))
    assert (operation.name, operation.input_num, operation.output_num) == ("SplitOperation", 1, 3)
    assert repr(operation) == "op name: SplitOperation, input_num: 1, output_num: 3"


def test_parameters_are_read_at_creation() -> None:
    param = torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD)
    add = torch_atb.Operation(param)
    param.elewise_type = Elewise.ELEWISE_MUL
    assert torch.equal(add.forward([X, Y])[0], X + Y)


def test_shapes_may_change_between_runs() -> None:
    split = torch_atb.Operation(torch_atb.SplitParam(split_dim=-1))
    for rows, columns in ((4, 32), (1, 8), (4, 32)):
        x = randn(rows, columns)
        first, second = split.forward([x])
        assert torch.equal(torch.cat([first, second], -1), x)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 20))
def test_linear_of_any_size_equals_torch(rows: int, terms: int, columns: int) -> None:
    x, weight = randn(rows, terms), randn(columns, terms, seed=1)
    (output,) = run(torch_atb.LinearParam(has_bias=False), x, weight)
    close(output, x.float() @ weight.float().T)


def test_bias_per_batch_is_added_to_every_row() -> None:
    x, weight, bias = randn(2, 3, 8), randn(2, 8, 4, seed=1), randn(2, 4, seed=2)
    (output,) = run(torch_atb.LinearParam(transpose_b=False), x, weight, bias)
    close(output, x.float() @ weight.float() + bias.float()[:, None])


def test_non_contiguous_inputs_are_read_in_their_order() -> None:
    x = randn(32, 4).T
    (output,) = run(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), x, X)
    assert torch.equal(output, x + X)


def cache_inputs(dtype: torch.dtype = torch.float16) -> list[Tensor]:
    """Two tokens of two heads, a cache of three blocks of four, slots 5 and 2."""
    return [
        randn(2, 2, 16, dtype=dtype),
        randn(2, 2, 16, dtype=dtype, seed=1),
        randn(3, 4, 2, 16, dtype=dtype, seed=2),
        randn(3, 4, 2, 16, dtype=dtype, seed=3),
        torch.tensor([5, 2], dtype=torch.int32),
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_caches_are_changed_in_place_and_returned(dtype: torch.dtype) -> None:
    key, value, key_cache, value_cache, slots = cache_inputs(dtype)
    before = key_cache.clone()
    outputs = run(torch_atb.ReshapeAndCacheParam(), key, value, key_cache, value_cache, slots)
    assert [output.data_ptr() for output in outputs] == [
        key_cache.data_ptr(),
        value_cache.data_ptr(),
    ]
    assert torch.equal(key_cache[1, 1], key[0])
    assert torch.equal(key_cache[0, 2], key[1])
    assert torch.equal(value_cache[1, 1], value[0])
    untouched = torch.ones(3, 4, dtype=torch.bool)
    untouched[1, 1] = untouched[0, 2] = False
    assert torch.equal(key_cache[untouched], before[untouched])


def test_non_contiguous_cache_is_changed_in_place() -> None:
    key, value, _, value_cache, slots = cache_inputs()
    strided = torch.zeros(3, 4, 2, 32, dtype=torch.float16)[..., ::2]
    run(torch_atb.ReshapeAndCacheParam(), key, value, strided, value_cache, slots)
    assert torch.equal(strided[1, 1], key[0])


def test_accumulation_changes_its_accumulator() -> None:
    x, weight = randn(4, 8, dtype=torch.bfloat16), randn(6, 8, dtype=torch.bfloat16, seed=1)
    accumulator = torch.ones(4, 6)
    (output,) = run(torch_atb.LinearParam(has_bias=False, en_accum=True), x, weight, accumulator)
    assert output.data_ptr() == accumulator.data_ptr()
    close(accumulator, x.float() @ weight.float().T + 1)


def test_empty_tensor_stands_for_an_absent_one() -> None:
    x, scale = randn(4, 32), torch.full((32,), 0.5, dtype=torch.float16)
    param = torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_QUANT_PER_CHANNEL)
    (output,) = run(param, x, scale, torch.empty(0, dtype=torch.int8))
    expected = (x.float() / 0.5).round().clamp(-128, 127).to(torch.int8)
    assert torch.equal(output, expected)


def test_infinities_and_nan_follow_ieee() -> None:
    x = torch.tensor([torch.inf, -torch.inf, 65504.0, torch.nan], dtype=torch.float16)
    (output,) = run(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), x, x)
    assert output.tolist()[:3] == [torch.inf, -torch.inf, torch.inf]
    assert torch.isnan(output[3])


def test_top_level_operations_are_numbered_at_their_first_run() -> None:
    first, second = (torch_atb.Operation(torch_atb.ConcatParam()) for _ in range(2))
    assert first.op_id is None
    second.forward([X, Y])
    first.forward([X, Y])
    second.forward([X, Y])
    assert first.op_id is not None
    assert second.op_id == OpId((first.op_id.parts[0] - 1,))


def test_unknown_operation_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="does not compute EventOperation; known: "):
        torch_atb.Operation(torch_atb.EventParam())
    with pytest.raises(OperationError, match="made from a parameter object such as LinearParam"):
        torch_atb.Operation("Linear")  # type: ignore[arg-type]


def test_failure_names_operation_and_shapes() -> None:
    linear = torch_atb.Operation(torch_atb.LinearParam(has_bias=False))
    message = (
        r"LinearOperation failed on inputs float16\[4, 32\], float16\[16, 5\]: .* takes k = 32"
    )
    with pytest.raises(OperationError, match=message):
        linear.forward([X, randn(16, 5)])
    linear.forward([X, X])
    with pytest.raises(OperationError, match=rf"LinearOperation \(operation {linear.op_id}\)"):
        linear.forward([X])


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(2, device="meta"), "input 1 is meta; hostatb computes on CPU tensors"),
        ([1.0], "input 1 is list; hostatb computes on CPU tensors"),
        (torch.zeros(2, dtype=torch.complex64), "complex64"),
    ],
)
def test_foreign_tensor_is_refused(tensor: object, message: str) -> None:
    add = torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD))
    with pytest.raises(OperationError, match=message):
        add.forward([X, tensor])  # type: ignore[list-item]


def test_run_times_are_kept_per_name() -> None:
    before = len(torch_atb.Prof.get_prof_stats().get_run_time_stats("TransposeOperation"))
    run(torch_atb.TransposeParam(perm=[1, 0]), X)
    after = torch_atb.Prof.get_prof_stats().get_run_time_stats("TransposeOperation")
    assert len(after) == before + 1
    assert all(time >= 0 for time in after)
    assert torch_atb.Prof.get_prof_stats().get_run_time_stats("NoSuchOperation") == []


def test_threads_run_their_own_operations() -> None:
    results: dict[int, Tensor] = {}

    def work(seed: int) -> None:
        x = randn(64, 64, seed=seed)
        add = torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD))
        for _ in range(20):
            results[seed] = add.forward([x, x])[0]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, result in results.items():
        assert torch.equal(result, randn(64, 64, seed=seed) * 2)
    assert len(results) == 4


def test_device_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOSTATB_DEVICE_ID", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert default_device() == 0
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert default_device() == 3
    monkeypatch.setenv("HOSTATB_DEVICE_ID", "1")
    assert default_device() == 1
    monkeypatch.setenv("HOSTATB_DEVICE_ID", "gpu")
    with pytest.raises(UsageError, match="HOSTATB_DEVICE_ID is 'gpu'"):
        default_device()


def test_device_is_chosen_per_thread() -> None:
    seen: list[int] = []

    def work() -> None:
        torch_atb.set_device(5)
        current_context()
        seen.append(current_device())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [5]
    assert current_device() == default_device()
    with pytest.raises(UsageError, match="device -1 is negative"):
        torch_atb.set_device(-1)


def test_process_ends_quietly_with_operations_alive(native_library: Path) -> None:
    program = (
        "import torch, ait_llm.hostatb as torch_atb\n"
        "op = torch_atb.Operation(torch_atb.SoftmaxParam(axes=[-1]))\n"
        "print(op.forward([torch.zeros(2, 4)])[0].sum().item())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")


def test_compatibility_names_exist() -> None:
    torch_atb.set_buffer_size(1024)
    with pytest.raises(ValueError, match="no negative size"):
        torch_atb.set_buffer_size(-1)
    assert Path(torch_atb.get_atb_home_path(), "lib", "libatb.so").is_file()
    assert torch_atb.ACL_FLOAT16 is torch_atb.AclDataType.ACL_FLOAT16
    assert vars(torch_atb)["ACTIVATION_SWISH"] is Activation.ACTIVATION_SWISH


def test_an_operation_that_several_threads_run_computes_for_each_what_it_was_given() -> None:
    linear = torch_atb.Operation(torch_atb.LinearParam(has_bias=False))
    weight = torch.eye(8).half()
    found: dict[int, bool] = {}

    def run(number: int) -> None:
        for turn in range(20):
            rows = 1 + (number + turn) % 4
            x = torch.full((rows, 8), float(number)).half()
            found[number] = torch.equal(linear.forward([x, weight])[0], x)
            if not found[number]:
                return

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == dict.fromkeys(range(4), True)
