"""Programs that are right but not those of golden are told by what they state of themselves.

Each program is a real model of ``transformers`` with one bug of its author's: a number, a function,
a weight. Golden is the same model without it, run in the same process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from matching_truth import families
from matching_truth.drives import DRIVES, once
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.activations import ACT2FN

from ait_llm import DumpConfig, register_hook
from ait_llm.compare import compare
from ait_llm.core.comparison import Origin, Report, Verdict
from ait_llm.report.alike import wrong_as_the_origin

Change = Callable[[nn.Module], None]
SCALED = ("llama", "qwen2", "gemma2", "phi3", "gpt-neox", "gpt2", "bert")


def _captured(
    folder: Path,
    family: str,
    change: Change | None = None,
    *,
    operators: bool = False,
    weights: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Path:
    model = families.make(family).to(dtype).eval()
    if change is not None:
        change(model)
    config = DumpConfig(dump_path=folder, operators=operators, weights=weights)
    with torch.no_grad(), register_hook(model, config):
        DRIVES.get(family, once)(model)
    return folder


def _report(folder: Path, family: str, change: Change, **how: bool) -> Report:
    golden = _captured(folder / "golden", family, **how)
    return compare(golden, _captured(folder / "mine", family, change, **how), jobs=1)


def _origin(folder: Path, family: str, change: Change, **how: bool) -> Origin:
    (origin,) = _report(folder, family, change, **how).origins
    return origin


def _attention(model: nn.Module) -> list[nn.Module]:
    return [each for each in model.modules() if isinstance(getattr(each, "scaling", None), float)]


def _unscaled(model: nn.Module) -> None:
    for each in _attention(model):
        each.scaling = 1.0


def _of_class(model: nn.Module, word: str) -> list[nn.Module]:
    return [each for each in model.modules() if word in type(each).__name__]


def _coarse(model: nn.Module) -> None:
    for each in _of_class(model, "Norm"):
        each.variance_epsilon = 0.01


def _gelu(model: nn.Module) -> None:
    for each in _of_class(model, "MLP"):
        each.act_fn = nn.GELU()


def _other_base(model: nn.Module) -> None:
    for each in _of_class(model, "RotaryEmbedding"):
        inverse = each.inv_freq
        assert isinstance(inverse, Tensor)
        places = torch.arange(len(inverse)) / len(inverse)
        inverse.copy_(1e6**-places)


def _enlarged(model: nn.Module) -> None:
    with torch.no_grad():
        model.get_parameter("model.layers.1.self_attn.o_proj.weight").mul_(1.02)


@pytest.mark.parametrize("family", SCALED)
def test_a_scale_that_is_another_number_is_told_with_both_numbers(
    family: str, tmp_path: Path
) -> None:
    origin = _origin(tmp_path, family, _unscaled)
    right = _attention(families.make(family))[0].scaling
    assert (origin.kind, origin.certain) == ("other definition", True)
    assert "attn" in origin.op or "attention" in origin.op
    assert origin.evidence.startswith(f"`scaling` of `{origin.op}` is 1.0 instead of {right:.7g};")


def test_a_window_of_the_configuration_is_told_of_the_model_whose_code_makes_the_mask_by_it(
    tmp_path: Path,
) -> None:
    golden, model = families.make("gemma3", attention="sdpa").eval(), families.make("gemma3").eval()
    with torch.no_grad(), register_hook(golden, DumpConfig(dump_path=tmp_path / "golden")):
        once(golden)
    model.config.sliding_window = 3  # each attention states 4 still, and is right
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=tmp_path / "mine")):
        once(model)
    (first, *_) = compare(tmp_path / "golden", tmp_path / "mine", jobs=1).origins
    assert (first.op, first.kind, first.certain) == ("root", "other definition", True)
    assert first.evidence.startswith("`config.sliding_window` of `root` is 3 instead of 4;")


@pytest.mark.parametrize("family", SCALED)
def test_a_scale_that_the_code_forgets_is_looked_for_in_that_code(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = _captured(tmp_path / "golden", family, weights=False)
    code = sys.modules[type(_attention(families.make(family))[0]).__module__]
    right = code.eager_attention_forward  # type: ignore[attr-defined]

    def forgetful(module: nn.Module, *args: object, **more: object) -> object:
        if len(args) > 4:
            return right(module, *args[:4], 1.0, *args[5:], **more)
        return right(module, *args, **{**more, "scaling": 1.0})

    monkeypatch.setattr(code, "eager_attention_forward", forgetful)
    report = compare(golden, _captured(tmp_path / "mine", family, weights=False), jobs=1)
    (origin,) = report.origins
    assert origin.kind == "code between modules"
    assert origin.evidence.startswith(f"the code of `{origin.op}`, ")
    assert f"--type torch-op --module-name '{origin.op}'" in origin.evidence
    assert "tokens" not in origin.evidence
    assert "differ already" not in origin.evidence
    # what is named holds the attention, and no projection
    assert origin.op.rpartition(".")[2] in ("self_attn", "attention", "attn", "self")


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize(
    ("change", "op", "words"),
    [
        (
            _coarse,
            "root.model.layers.0.input_layernorm",
            "`variance_epsilon` of `root.model.layers.0.input_layernorm` is 0.01 instead of 1e-06;",
        ),
        (
            _gelu,
            "root.model.layers.0.mlp.act_fn",
            "the function of `root.model.layers.0.mlp.act_fn` is gelu instead of silu;",
        ),
        (
            _unscaled,
            "root.model.layers.0.self_attn",
            "`scaling` of `root.model.layers.0.self_attn` is 1.0 instead of 0.25;",
        ),
    ],
)
def test_what_defines_a_module_otherwise_is_the_origin(
    change: Change, op: str, words: str, operators: bool, tmp_path: Path
) -> None:
    origin = _origin(tmp_path, "llama", change, operators=operators)
    assert (origin.op, origin.kind, origin.certain) == (op, "other definition", True)
    assert origin.evidence.startswith(words)


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize(
    ("change", "op", "words"),
    [
        (
            _enlarged,
            "root.model.layers.1.self_attn.o_proj",
            "`weight` of `root.model.layers.1.self_attn.o_proj` is not that of golden, 100 % of "
            "its elements differ, most at [",
        ),
        (
            _other_base,
            "root.model.rotary_emb",
            "`inv_freq` of `root.model.rotary_emb` is not that of golden, 87.5 % of its elements "
            "differ, most at [1]: 0.177828 instead of 0.316228;",
        ),
    ],
)
def test_a_weight_that_is_another_one_is_told_before_what_reads_it(
    change: Change, op: str, words: str, operators: bool, tmp_path: Path
) -> None:
    origin = _origin(tmp_path, "llama", change, operators=operators)
    assert (origin.op, origin.kind, origin.certain) == (op, "other weight", True)
    assert origin.evidence.startswith(words)


def _projections(model: nn.Module) -> list[nn.Linear]:
    return [
        each
        for name, each in model.named_modules()
        if isinstance(each, nn.Linear) and name.endswith(("q_proj", "k_proj", "v_proj"))
    ]


def _biased(model: nn.Module) -> None:
    torch.manual_seed(3)
    for each in _projections(model):
        nn.init.normal_(each.bias, std=0.3)


def _without_biases(model: nn.Module) -> None:
    for each in _projections(model):
        each.bias = None


@pytest.mark.parametrize("weights", [False, True])
def test_all_biases_that_a_layer_lost_are_named(weights: bool, tmp_path: Path) -> None:
    golden = _captured(tmp_path / "golden", "qwen2", _biased, weights=weights)
    mine = _captured(tmp_path / "mine", "qwen2", _without_biases, weights=weights)
    report = compare(golden, mine, jobs=1)
    layer = "root.model.layers.0.self_attn"
    assert report.origins[0].op == f"{layer}.q_proj"
    assert [*wrong_as_the_origin(report)] == [f"{layer}.k_proj", f"{layer}.v_proj"]


def test_a_number_in_the_code_is_told_by_the_operator_that_it_is_given_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = _captured(tmp_path / "golden", "llama", operators=True)
    from transformers.models.llama import modeling_llama as code

    right = code.eager_attention_forward
    monkeypatch.setattr(
        code,
        "eager_attention_forward",
        lambda *args, **more: right(*args, **{**more, "scaling": 1.0}),
    )
    mine = _captured(tmp_path / "mine", "llama", operators=True)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert origin.op == "root.model.layers.0.self_attn.aten.mul.Tensor"
    assert origin.evidence.startswith(f"the number given to `{origin.op}` is 1.0 instead of 0.25;")


def _slightly_coarse(model: nn.Module) -> None:
    model.get_submodule("model.layers.1.input_layernorm").variance_epsilon = 1.5e-5


def _slightly_enlarged(model: nn.Module) -> None:
    with torch.no_grad():
        model.get_parameter("model.layers.1.self_attn.o_proj.weight").mul_(1 + 2e-5)


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (
            _slightly_coarse,
            "other definition",
            "`variance_epsilon` of `root.model.layers.1.input_layernorm` is 1.5e-05 instead of",
        ),
        (
            _slightly_enlarged,
            "other weight",
            "`weight` of `root.model.layers.1.self_attn.o_proj` is not that of golden, ",
        ),
    ],
)
def test_what_is_stated_otherwise_is_told_also_where_every_value_passes(
    change: Change, kind: str, words: str, operators: bool, tmp_path: Path
) -> None:
    report = _report(tmp_path, "llama", change, operators=operators)
    (origin,) = report.origins
    assert (origin.kind, origin.certain) == (kind, True)
    assert origin.evidence.startswith(words)
    (failed,) = report.with_verdict(Verdict.FAIL)
    assert failed.mine is not None
    assert failed.mine.op == origin.op


def _asked(folder: Path, **given: list[list[int]]) -> Path:
    """A capture of a Llama that is asked something else than the usual."""
    model = families.make("llama").eval()
    arguments = {name: torch.tensor(value) for name, value in given.items()}
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder)):
        model(**arguments, use_cache=False)
    return folder


IDS = [[5, 11, 29, 41, 17, 60]]
SEEN = [[1, 1, 1, 1, 1, 1]]
PLACES = [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"input_ids": [[5, 11, 29, 41, 19, 60]]},
            "`input_ids` of `root` differ at position 4: 19 instead of 17",
        ),
        (
            {"attention_mask": [[1, 1, 1, 0, 1, 1]]},
            "`attention_mask` of `root` hides position 3 only in mine",
        ),
        (
            {"position_ids": [[0, 1, 2, 4, 5, 6]]},
            "`position_ids` of `root` differ at position 3: 4 instead of 3, and at 2 more",
        ),
    ],
)
def test_what_the_program_is_asked_is_named_first(
    change: dict[str, list[list[int]]], words: str, tmp_path: Path
) -> None:
    usual = {"input_ids": IDS, "attention_mask": SEEN, "position_ids": PLACES}
    golden = _asked(tmp_path / "golden", **usual)
    report = compare(golden, _asked(tmp_path / "mine", **{**usual, **change}), jobs=1)
    (origin,) = report.origins
    assert (origin.op, origin.kind, origin.certain) == ("root", "other input", True)
    assert origin.evidence == f"inputs differ already: {words}"


@pytest.mark.parametrize("operators", [False, True])
def test_a_residual_that_is_skipped_is_in_the_code_of_the_layer(
    operators: bool, tmp_path: Path
) -> None:
    def forgetful(model: nn.Module) -> None:
        layer = model.get_submodule("model.layers.1")

        def forward(hidden_states: Tensor, **more: Any) -> Tensor:
            normed = layer.input_layernorm(hidden_states)
            attended = layer.self_attn(hidden_states=normed, **more)[0]
            return attended + layer.mlp(layer.post_attention_layernorm(attended))

        layer.forward = forward  # type: ignore[method-assign, assignment]

    origin = _origin(tmp_path, "llama", forgetful, operators=operators)
    assert (origin.op, origin.kind) == ("root.model.layers.1", "code between modules")
    words = "golden's makes `aten.add" if operators else "between `self_attn` and `post_attention"
    assert words in origin.evidence


def test_a_definition_without_an_effect_is_a_note(tmp_path: Path) -> None:
    def finer(model: nn.Module) -> None:
        for each in _of_class(model, "Norm"):
            each.variance_epsilon = 1.00001e-6

    report = _report(tmp_path, "llama", finer)
    assert (report.exit_code(), report.origins) == (0, ())
    (note,) = [each for each in report.problems if not each.decides]
    assert note.text.startswith(
        "definitions differ, and all that was compared agrees: `variance_epsilon` of "
        "`root.model.layers.0.input_layernorm` is 1.00001e-06 instead of 1e-06; "
    )


def test_an_operator_with_the_weights_of_golden_is_not_certain_to_be_defined_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = _captured(tmp_path / "golden", "llama", operators=True, dtype=torch.float16)
    from transformers.models.llama import modeling_llama as code

    right = code.eager_attention_forward
    monkeypatch.setattr(
        code,
        "eager_attention_forward",
        lambda module, query, key, value, mask, *args, **more: right(
            module, query, key, value, None, *args, **more
        ),
    )
    mine = _captured(tmp_path / "mine", "llama", operators=True, dtype=torch.float16)
    (origin,) = compare(golden, mine, jobs=1).origins
    assert "root.model.layers.0.self_attn" in (origin.op, *origin.candidates)
    assert not origin.certain or ".aten." not in origin.op


def _set(name: str, change: Callable[[float], float]) -> Change:
    def changed(model: nn.Module) -> None:
        chosen = [each for each in model.modules() if name in vars(each)][-1]
        setattr(chosen, name, change(getattr(chosen, name)))

    return changed


@pytest.mark.parametrize("golden", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("family", "name", "factor"),
    [
        ("deepseek-v3", "routed_scaling_factor", 1.00006),
        ("llama", "attention_scaling", 1.00006),
    ],
)
def test_a_factor_is_told_although_the_types_of_the_runs_differ_by_more(
    family: str, name: str, factor: float, golden: torch.dtype, tmp_path: Path
) -> None:
    right = _captured(tmp_path / "golden", family, dtype=golden)
    change = _set(name, lambda old: old * factor)
    mine = _captured(tmp_path / "mine", family, change, dtype=torch.bfloat16)
    report = compare(right, mine, jobs=1)
    (origin,) = report.origins
    assert (origin.kind, origin.certain) == ("other definition", True)
    assert origin.evidence.startswith(f"`{name}` of `{origin.op}` is ")
    assert report.exit_code() == 1


def _swapped(model: nn.Module) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("layers.1.mlp.experts.gate_up_proj"):
                dim = weight.ndim - 2
                weight.copy_(torch.cat([*reversed(weight.chunk(2, dim))], dim))


def test_a_weight_that_the_code_of_a_module_reads_is_told_before_that_code(tmp_path: Path) -> None:
    origin = _origin(tmp_path, "deepseek-v3", _swapped)
    assert (origin.op, origin.kind) == ("root.model.layers.1.mlp.experts", "other weight")
    assert origin.evidence.startswith(
        "`gate_up_proj` of `root.model.layers.1.mlp.experts` is not that of golden, "
    )


@pytest.mark.parametrize("other", [torch.float16, torch.float32])
def test_frequencies_of_16_bits_are_held_to_their_own_rounding(
    other: torch.dtype, tmp_path: Path
) -> None:
    """Also where golden's are of float32: those of 16 bits are the same, rounded."""

    def other_base(steps: int) -> Change:
        def change(model: nn.Module) -> None:
            (rotary,) = _of_class(model, "RotaryEmbedding")
            inverse = rotary.inv_freq
            assert isinstance(inverse, Tensor)
            inverse.view(torch.int16)[2] += steps

        return change

    golden = _captured(tmp_path / "golden", "llama", dtype=other)
    for steps, expected in ((0, []), (1, []), (3, ["root.model.rotary_emb"])):
        mine = _captured(tmp_path / str(steps), "llama", other_base(steps), dtype=torch.float16)
        report = compare(golden, mine, jobs=1)
        assert [each.op for each in report.origins] == expected
        assert report.exit_code() == len(expected)


def test_small_frequencies_of_two_types_of_16_bits_are_not_held_to_one_of_them(
    tmp_path: Path,
) -> None:
    """The smallest of float16 have fewer digits than bfloat16."""

    def slow(model: nn.Module) -> None:
        (rotary,) = _of_class(model, "RotaryEmbedding")
        inverse = rotary.inv_freq
        assert isinstance(inverse, Tensor)
        inverse.copy_(1e7 ** (-torch.arange(len(inverse)) / len(inverse)))

    golden = _captured(tmp_path / "golden", "llama", slow, dtype=torch.bfloat16)
    mine = _captured(tmp_path / "mine", "llama", slow, dtype=torch.float16)
    report = compare(golden, mine, jobs=1)
    assert (report.origins, report.exit_code()) == ((), 0)


class _Otherwise(TorchFunctionMode):
    """Calls a function otherwise where the weights of one module are read."""

    def __init__(self, model: nn.Module, path: str) -> None:
        super().__init__()
        self._weight = model.get_parameter(f"{path}.weight")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear and args[1] is self._weight:
            few = (each.bfloat16() for each in args if each is not None)
            return func(*few).to(args[0].dtype)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_module_that_alone_computes_in_fewer_bits_is_told_by_its_operators(
    everywhere: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Also where all of the run has another type than golden's."""
    golden = _captured(tmp_path / "golden", "llama", operators=True)
    model = families.make("llama").to(dtype).eval()
    paths = ["model.layers.1.self_attn.k_proj"]
    if everywhere:  # as a program does that was told to, by autocast perhaps
        paths = [name for name, each in model.named_modules() if isinstance(each, nn.Linear)]
    config = DumpConfig(dump_path=tmp_path / "mine", operators=True, weights=True)
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(_Otherwise(model, path))
        stack.enter_context(torch.no_grad())
        stack.enter_context(register_hook(model, config))
        once(model)
    report = compare(golden, tmp_path / "mine", jobs=1)
    told = [(each.op, each.kind, each.certain) for each in report.origins]
    if everywhere:
        assert (told, report.exit_code()) == ([], 0)
        return
    assert told == [("root.model.layers.1.self_attn.k_proj", "code between modules", True)]
    assert "`aten._to_copy to bfloat16`" in report.origins[0].evidence
    assert report.exit_code() == 1


def test_an_activation_without_attributes_is_told_by_its_class(tmp_path: Path) -> None:
    """Its operators are others than golden's, so that nothing it makes can be compared."""

    def run(folder: Path, activation: nn.Module) -> Path:
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(16, 32), activation, nn.Linear(32, 16))
        with torch.no_grad():
            model[2].weight *= 1e-3  # what it changes is small beside what is added to it
            model[2].bias += 8
        config = DumpConfig(dump_path=folder, operators=True, weights=True)
        with torch.no_grad(), register_hook(model.bfloat16(), config):
            model(torch.randn(4, 16).bfloat16())
        return folder

    golden = run(tmp_path / "golden", ACT2FN["gelu"])
    report = compare(golden, run(tmp_path / "mine", ACT2FN["quick_gelu"]), jobs=1)
    (origin,) = report.origins
    assert (origin.op, origin.kind) == ("root.1", "other definition")
    assert "the function of `root.1` is quick_gelu instead of gelu" in origin.evidence
    assert report.exit_code() == 1
