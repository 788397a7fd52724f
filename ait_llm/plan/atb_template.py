"""A decoder as inference engines build it on ATB, as if its tensors had been described.

The graphs are those of the Llama demo of hostatb: packed tokens, a paged cache, one graph for each
layer, prefill and decode as two models. It is an estimate for programs that are built so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ait_llm.core import FORMAT_ND, DType, StepRange
from ait_llm.dumps.model import Phase, Role
from ait_llm.errors import UsageError
from ait_llm.plan.atb_sizes import AtbSizes
from ait_llm.plan.atb_survey import AtbSurvey, TensorSize, UnitSize, tensor_size
from ait_llm.plan.disk import Disk
from ait_llm.plan.meta_program import MetaRequest
from ait_llm.plan.steps import steps_to_look_at
from ait_llm.plan.survey import Surveyed

_PROCESS = (0, 10000)
_BLOCK_TOKENS = 16  # of a block of the cache, where the demo has it
_PARAMS = 134  # average bytes of op_param.json
_WITHOUT_PARAMS = ("ReshapeAndCacheOperation",)
_MODELS = ("llama", "mistral", "qwen2", "qwen3", "qwen2_5", "phi3", "gemma", "internlm2", "yi")

# Member: place in its graph, type, kernel (empty for a graph), inputs, outputs.
_Row = tuple[str, str, str, str, str]
_LAYER: tuple[_Row, ...] = (
    ("", "{layer}", "", "norm qkv_w o_w norm gate_up_w down_w x cos sin {state}", "x"),
    ("0", "Attention", "", "norm qkv_w o_w x cos sin {state}", "x"),
    ("0_0", "QKVLinearSplitPack", "", "x norm qkv_w", "x kv kv"),
    ("0_0_0", "NormLinear", "", "x norm qkv_w", "qkv"),
    ("0_0_0_0", "RmsNormOperation", "RmsNormKernel", "x:x1 norm:x2", "x:output"),
    ("0_0_0_1", "LinearOperation", "PpMatMulF16Kernel", "x:x qkv_w:weight", "qkv:output"),
    ("0_0_1", "SplitOperation", "SplitF16Output3Kernel",
     "qkv:x", "x:output1 kv:output2 kv:output3"),
    ("0_1", "RotaryPositionEmbedding", "", "x kv cos sin lengths", "x kv"),
    ("0_1_0", "RopeOperation", "RopeKernel",
     "x:q kv:k cos:cos sin:sin lengths:seqlen", "x:ropeQ kv:ropeK"),
    ("0_2", "SelfAttention", "", "x kv kv {state}", "x3"),
    ("0_2_0", "ReshapeAndCacheOperation", "ReshapeAndCacheNdKernel",
     "kv3:key kv3:value cache:keyCache cache:valueCache slots:slotMapping",
     "cache:keyCacheOut cache:valueCacheOut"),
    ("0_2_1", "{attention}", "{kernel}", "{core}", "x3:{out}"),
    ("0_3", "LinearOperation", "PpMatMulF16Kernel", "x:x o_w:weight", "x:output"),
    ("1", "ElewiseOperation", "AddF16Kernel", "x:x x:y", "x:output"),
    ("2", "Mlp", "", "norm gate_up_w down_w x", "x"),
    ("2_0", "NormLinear", "", "x norm gate_up_w", "gate_up"),
    ("2_0_0", "RmsNormOperation", "RmsNormKernel", "x:x1 norm:x2", "x:output"),
    ("2_0_1", "LinearOperation", "PpMatMulF16Kernel", "x:x gate_up_w:weight", "gate_up:output"),
    ("2_1", "ActivationOperation", "SwigluForwardF16Kernel", "gate_up:input", "product:output"),
    ("2_2", "LinearOperation", "PpMatMulF16Kernel", "product:x down_w:weight", "x:output"),
    ("3", "ElewiseOperation", "AddF16Kernel", "x:x x:y", "x:output"),
)  # fmt: skip
_BEFORE: tuple[tuple[_Row, ...], ...] = (
    (
        ("", "WordEmbedding", "", "vocab_w ids", "x"),
        ("0", "GatherOperation", "Gather16I64Kernel", "vocab_w:x ids:indices", "x:output"),
    ),
    (
        ("", "PositionalEmbeddingGather", "", "ids table table", "cos sin"),
        ("0", "GatherOperation", "Gather16I64Kernel", "table:x ids:indices", "cos:output"),
        ("1", "GatherOperation", "Gather16I64Kernel", "table:x ids:indices", "sin:output"),
    ),
)
_NORM: tuple[_Row, ...] = (("", "RmsNormOperation", "RmsNormKernel", "x:x1 norm:x2", "x:output"),)
_HEADS: Mapping[bool, tuple[_Row, ...]] = {
    True: (
        ("", "LmHead", "", "x vocab_w rows", "logits"),
        ("0", "GatherOperation", "Gather16I64Kernel", "x:x rows:indices", "last:output"),
        ("1", "LinearOperation", "PpMatMulF16Kernel", "last:x vocab_w:weight", "logits:output"),
    ),
    False: (
        ("", "LmHead", "", "x vocab_w", "logits"),
        ("0", "LinearOperation", "PpMatMulF16Kernel", "x:x vocab_w:weight", "logits:output"),
    ),
}
_PREFILL = {
    "{layer}": "Prefill_layer",
    "{state}": "mask cache cache slots lengths",
    "{attention}": "SelfAttentionOperation",
    "{kernel}": "UnpadFlashAttentionEncoderKernel",
    "{core}": "x3:query kv3:key kv3:value mask:mask lengths:seqLen",
    "{out}": "output",
}
_DECODE = {
    "{layer}": "Decoder_layer",
    "{state}": "cache cache blocks slots lengths",
    "{attention}": "PagedAttentionOperation",
    "{kernel}": "PagedAttentionMaskNdKernel",
    "{core}": "x3:query cache:keyCache cache:valueCache blocks:blockTables lengths:contextLens",
    "{out}": "attnOut",
}


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of a decoder."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    positions: int


def survey_of_decoder(request: MetaRequest, wanted: StepRange, disk: Disk) -> Surveyed:
    """What a decoder would show; steps count for prefill and decode apart, as on ATB.

    Raises:
        UsageError: the model is of another kind, or its sizes do not fit together.
    """
    sizes = _sizes_of(request.config)
    survey = AtbSurvey()
    looked_at = steps_to_look_at(wanted)
    decoded = max(request.steps - 1, 0)
    for prefill, count in ((True, 1), (False, decoded)):
        graphs = _graphs(sizes.layers, prefill=prefill)
        first = 0 if prefill else len(graphs)
        for top in range(first, first + len(graphs)):
            survey.counts[_PROCESS, top] = count
        for step in range(count):
            if step in looked_at:
                shapes = _shapes(sizes, request, step, prefill=prefill)
                for top, rows in enumerate(graphs, first):
                    survey.units += _units(rows, top, step, shapes)
    return Surveyed(AtbSizes(survey, disk.block))


def _sizes_of(config: Mapping[str, Any]) -> _Sizes:
    kind = str(config["model_type"])
    if kind not in _MODELS:
        raise UsageError(
            f"--model: {kind} is not among the decoders whose operators on ATB are known "
            f"({', '.join(_MODELS)}); use --exec, or --type torch"
        )
    try:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        return _Sizes(
            hidden,
            int(config["num_hidden_layers"]),
            heads,
            int(config.get("num_key_value_heads") or heads),
            int(config.get("head_dim") or hidden // heads),
            int(config["intermediate_size"]),
            int(config["vocab_size"]),
            int(config.get("max_position_embeddings") or 2048),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UsageError(
            f"--model: the sizes of the {kind} do not make a decoder ({error!r})"
        ) from None


def _graphs(layers: int, *, prefill: bool) -> list[Sequence[_Row]]:
    """The top-level operations of prefill or decode, in their order."""
    words = _PREFILL if prefill else _DECODE
    layer = [tuple(_filled(text, words) for text in row) for row in _LAYER]
    return [*_BEFORE, *([layer] * layers), _NORM, _HEADS[prefill]]  # type: ignore[list-item]


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


_Shapes = Mapping[str, tuple[DType, tuple[int, ...]]]


def _shapes(sizes: _Sizes, request: MetaRequest, step: int, *, prefill: bool) -> _Shapes:
    """Types and shapes of everything that operators are given, by its name in the rows."""
    dtype = DType.BFLOAT16 if request.dtype == "bfloat16" else DType.FLOAT16
    batch = request.batch
    tokens = batch * request.prompt if prefill else batch
    length = request.prompt + (0 if prefill else step + 1)
    # Caches are made for all that will be generated.
    blocks = batch * -(-(request.prompt + request.steps) // _BLOCK_TOKENS)
    table = -(-length // _BLOCK_TOKENS)
    attention = sizes.heads * sizes.head_dim
    kv = sizes.kv_heads * sizes.head_dim
    return {
        "x": (dtype, (tokens, sizes.hidden)),
        "x3": (dtype, (tokens, sizes.heads, sizes.head_dim)),
        "kv": (dtype, (tokens, kv)),
        "kv3": (dtype, (tokens, sizes.kv_heads, sizes.head_dim)),
        "qkv": (dtype, (tokens, attention + 2 * kv)),
        "gate_up": (dtype, (tokens, 2 * sizes.inner)),
        "product": (dtype, (tokens, sizes.inner)),
        "norm": (dtype, (sizes.hidden,)),
        "qkv_w": (dtype, (attention + 2 * kv, sizes.hidden)),
        "o_w": (dtype, (sizes.hidden, attention)),
        "gate_up_w": (dtype, (2 * sizes.inner, sizes.hidden)),
        "down_w": (dtype, (sizes.hidden, sizes.inner)),
        "vocab_w": (dtype, (sizes.vocab, sizes.hidden)),
        "cos": (dtype, (tokens, sizes.head_dim)),
        "sin": (dtype, (tokens, sizes.head_dim)),
        "table": (dtype, (sizes.positions, sizes.head_dim)),
        "ids": (DType.INT64, (tokens,)),
        "rows": (DType.INT64, (batch,)),
        "last": (dtype, (batch, sizes.hidden)),
        "logits": (dtype, (batch, sizes.vocab)),
        "mask": (dtype, (length, length)),
        "cache": (dtype, (blocks, _BLOCK_TOKENS, sizes.kv_heads, sizes.head_dim)),
        "slots": (DType.INT32, (tokens,)),
        "lengths": (DType.INT32, (batch,)),
        "blocks": (DType.INT32, (batch, table)),
    }


def _units(rows: Sequence[_Row], top: int, step: int, shapes: _Shapes) -> Iterator[UnitSize]:
    folders: dict[str, str] = {}
    device, pid = _PROCESS
    for place, name, kernel, inputs, outputs in rows:
        above, _, own = place.rpartition("_")
        parent = folders[above] if place else f"{device}_{pid}/{step}"
        path = folders[place] = f"{parent}/{own or top}_{name}"
        ids = (top, *map(int, place.split("_"))) if place else (top,)
        yield UnitSize(
            _PROCESS,
            step,
            ids,
            name,
            name,
            path,
            is_graph=not kernel,
            params=_PARAMS if kernel and name not in _WITHOUT_PARAMS else None,
            tensors=_tensors(inputs, outputs, shapes, named=bool(kernel)),
        )
        if kernel:
            yield UnitSize(
                _PROCESS,
                step,
                (*ids, 0),
                name,
                kernel,
                f"{path}/0_{kernel}",
                is_kernel=True,
                tensors=_tensors(inputs, outputs, shapes, named=False),
            )


def _tensors(inputs: str, outputs: str, shapes: _Shapes, *, named: bool) -> tuple[TensorSize, ...]:
    phases: tuple[Phase, ...] = ("before", "after")
    roles: tuple[tuple[Role, str], ...] = (("in", inputs), ("out", outputs))
    return tuple(
        _tensor(role, phase, number, word, shapes, named=named)
        for phase in phases
        for role, words in roles
        for number, word in enumerate(words.split())
    )


def _tensor(
    role: Role, phase: Phase, number: int, word: str, shapes: _Shapes, *, named: bool
) -> TensorSize:
    what, _, name = word.partition(":")
    dtype, shape = shapes[what]
    elements = 1
    for size in shape:
        elements *= size
    stem = f"{role}tensor{number}" + (f"_{name}" if named and name else "")
    kind = (dtype.code, FORMAT_ND, shape)
    return tensor_size(role, phase, stem, kind, dtype.byte_count(elements))
