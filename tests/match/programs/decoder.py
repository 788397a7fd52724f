"""Decoders on the embedded library, laid out as inference engines on ATB lay them out.

One builder for the shapes of the field: packed or separate projections, biases, norms of queries
and keys, parallel residual, gated or plain MLP, experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import ait_llm.hostatb as torch_atb
from tests.match.programs.atb_program import AtbProgram

Linear = tuple[Tensor, Tensor | None]  # weight [out, in], bias


@dataclass(frozen=True)
class Shape:
    """What a decoder looks like.

    Attributes:
        heads, kv_heads, dim: of attention.
        norm: ``rms`` or ``layer``.
        parallel: attention and MLP both start from the layer's input.
        one_norm: and from the same norm of it.
        rope: coefficient; 2 pairs the halves of a head, ``dim`` neighbours.
        last_only: logits of the last token of each sequence.
        eps: of the norms.
        streams: sums are formed by the norm that reads them, which hands them on beside.
    """

    heads: int
    kv_heads: int
    dim: int
    norm: str = "rms"
    parallel: bool = False
    one_norm: bool = False
    rope: int = 2
    last_only: bool = False
    eps: float = 1e-5
    streams: bool = False


@dataclass(frozen=True)
class Layer:
    """Weights of a layer.

    Attributes:
        norm1, norm2: before attention, before the MLP.
        attention: one packed projection (q, k, v), or three.
        out: output projection.
        into: one packed projection (gate, up), two, or one of a plain MLP.
        down: of the MLP.
        gated: SwiGLU, else GELU.
        q_norm, k_norm: norms of each head.
        router: of a layer of experts, whose ``experts`` are then (gate_up, down) each.
        top: experts per token.
    """

    norm1: tuple[Tensor, ...]
    norm2: tuple[Tensor, ...]
    attention: Sequence[Linear]
    out: Linear
    into: Sequence[Linear] = ()
    down: Linear | None = None
    gated: bool = True
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    router: Tensor | None = None
    experts: Sequence[tuple[Tensor, Tensor]] = field(default_factory=tuple)
    top: int = 2


class Decoder:
    """Runs a prefill of packed sequences.

    Args:
        program: where it runs.
        shape: what it looks like.
        tables: cosine and sine ``[positions, dim]``.
    """

    def __init__(self, program: AtbProgram, shape: Shape, tables: tuple[Tensor, Tensor]) -> None:
        self._program = program
        self._shape = shape
        self._tables = tables

    def prefill(
        self,
        sequences: Sequence[Tensor],
        embedding: Tensor,
        layers: Sequence[Layer],
        norm: tuple[Tensor, ...],
        head: Tensor,
        head_bias: Tensor | None = None,
    ) -> Tensor:
        """Logits of all tokens, or of the last of each sequence."""
        run = self._program.run
        lengths = torch.tensor([len(ids) for ids in sequences], dtype=torch.int32)
        positions = torch.cat([torch.arange(len(ids)) for ids in sequences])
        longest = int(lengths.max())
        hidden_value = torch.finfo(torch.float16).min
        mask = torch.full((longest, longest), hidden_value, dtype=torch.float16).triu(diagonal=1)
        ids = torch.cat(list(sequences))
        with self._program.graph("WordEmbedding") as out:
            x = run(torch_atb.GatherParam(axis=0), embedding, ids)
            out.append(x)
        with self._program.graph("PositionalEmbeddingGather") as out:
            cos = run(torch_atb.GatherParam(axis=0), self._tables[0], positions)
            sin = run(torch_atb.GatherParam(axis=0), self._tables[1], positions)
            out += [cos, sin]
        change = None
        for layer in layers:
            with self._program.graph("Prefill_layer") as out:
                if self._shape.streams:
                    x, change = self._of_streams(layer, x, change, (cos, sin, mask, lengths))
                    out += [x, change]
                else:
                    x = self._layer(layer, x, (cos, sin, mask, lengths))
                    out.append(x)
        x = self._norm(x, norm) if change is None else self._summed(x, change, norm)[0]
        with self._program.graph("LmHead") as out:
            if self._shape.last_only:
                x = run(torch_atb.GatherParam(axis=0), x, lengths.cumsum(0) - 1)
            logits = self._linear(x, (head, head_bias))
            out.append(logits)
        return logits

    def _layer(self, layer: Layer, x: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        normed = self._norm(x, layer.norm1) if self._shape.one_norm else None
        with self._program.graph("Attention") as out:
            source = self._norm(x, layer.norm1) if normed is None else normed
            attended = self._attention(layer, source, state)
            out.append(attended)
        if self._shape.parallel:
            mlp = self._mlp(layer, x, normed)
            return self._add(self._add(x, attended), mlp)
        x = self._add(x, attended)
        return self._add(x, self._mlp(layer, x))

    def _of_streams(
        self, layer: Layer, x: Tensor, change: Tensor | None, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """What a layer hands on of two streams: hidden states, and what is not added up yet."""
        if change is None:
            normed = self._norm(x, layer.norm1)
        else:
            normed, x = self._summed(x, change, layer.norm1)
        with self._program.graph("Attention") as out:
            change = self._attention(layer, normed, state)
            out.append(change)
        normed, x = self._summed(x, change, layer.norm2)
        return x, self._mlp(layer, x, normed)

    def _summed(
        self, x: Tensor, change: Tensor, weights: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """The norm of a sum, and the sum."""
        rms = torch_atb.RmsNormParam
        param = rms(
            layer_type=rms.RmsNormType.RMS_NORM_PRENORM,
            pre_norm_param=rms.PreNormParam(epsilon=self._shape.eps),
        )
        normed, total = self._program.run(param, change, x, *weights)
        return normed, total

    def _attention(self, layer: Layer, x: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        cos, sin, mask, lengths = state
        shape, view = self._shape, self._program.view
        sizes = [shape.heads * shape.dim, *([shape.kv_heads * shape.dim] * 2)]
        if len(layer.attention) == 1:
            packed = self._linear(x, layer.attention[0])
            q, k, v = self._program.run(
                torch_atb.SplitParam(split_dim=1, split_num=3, split_sizes=sizes), packed
            )
        else:
            q, k, v = (self._linear(x, weight) for weight in layer.attention)
        rows = x.shape[0]
        if layer.q_norm is not None and layer.k_norm is not None:
            q = self._norm(view(q, rows * shape.heads, shape.dim), (layer.q_norm,))
            k = self._norm(view(k, rows * shape.kv_heads, shape.dim), (layer.k_norm,))
            q, k = view(q, rows, sizes[0]), view(k, rows, sizes[1])
        q, k = self._program.run(
            torch_atb.RopeParam(rotary_coeff=shape.rope), q, k, cos, sin, lengths
        )
        kinds = torch_atb.SelfAttentionParam
        param = kinds(
            head_num=shape.heads,
            kv_head_num=shape.kv_heads,
            qk_scale=shape.dim**-0.5,
            calc_type=kinds.CalcType.PA_ENCODER,
            mask_type=kinds.MaskType.MASK_TYPE_NORM,
            is_triu_mask=1,
        )
        heads = [view(t, rows, -1, shape.dim) for t in (q, k, v)]
        context = self._program.run(param, *heads, mask, lengths)
        return self._linear(view(context, rows, sizes[0]), layer.out)

    def _mlp(self, layer: Layer, x: Tensor, normed: Tensor | None = None) -> Tensor:
        with self._program.graph("Mlp") as out:
            x = self._norm(x, layer.norm2) if normed is None else normed
            result = self._experts(layer, x) if layer.router is not None else self._plain(layer, x)
            out.append(result)
        return result

    def _plain(self, layer: Layer, x: Tensor) -> Tensor:
        kinds = torch_atb.ActivationType
        run = self._program.run
        if len(layer.into) == 2:  # gate and up apart
            gate, up = (self._linear(x, weight) for weight in layer.into)
            gate = run(torch_atb.ActivationParam(kinds.ACTIVATION_SWISH), gate)
            multiply = torch_atb.ElewiseParam.ElewiseType.ELEWISE_MUL
            x = run(torch_atb.ElewiseParam(elewise_type=multiply), gate, up)
        else:
            x = self._linear(x, layer.into[0])
            kind = kinds.ACTIVATION_SWIGLU_FORWARD if layer.gated else kinds.ACTIVATION_GELU
            mode = torch_atb.ActivationParam.GeLUMode.NONE_MODE
            x = run(torch_atb.ActivationParam(activation_type=kind, dim=-1, gelu_mode=mode), x)
        assert layer.down is not None
        return self._linear(x, layer.down)

    def _experts(self, layer: Layer, x: Tensor) -> Tensor:
        """Routing and products of experts, as the plugins of inference engines do them."""
        assert layer.router is not None
        logits = self._linear(x, (layer.router, None))
        scores = logits.float().softmax(-1).topk(layer.top, dim=-1)
        weights = scores.values / scores.values.sum(-1, keepdim=True)
        chosen = scores.indices.to(torch.int32)
        plugin = self._program.plugin
        plugin("MoeTopkSoftmaxOperation", [logits], [weights, chosen], topkNum=layer.top)
        order = chosen.reshape(-1).argsort(stable=True)
        token = (order // layer.top).to(torch.int32)
        counts = torch.bincount(chosen.reshape(-1), minlength=len(layer.experts)).cumsum(0)
        rows = x[token.long()]
        plugin("MoeInitRoutingOperation", [x, chosen], [rows, token, counts])
        expert = chosen.reshape(-1)[order]
        into = torch.stack([layer.experts[e][0] for e in range(len(layer.experts))])
        down = torch.stack([layer.experts[e][1] for e in range(len(layer.experts))])
        middle = torch.stack([into[e] @ row for e, row in zip(expert, rows, strict=True)])
        plugin("GroupedMatmulOperation", [rows, into, counts], [middle])
        gate, up = middle.float().chunk(2, dim=-1)
        product = (torch.nn.functional.silu(gate) * up).half()
        plugin("SwigluOperation", [middle], [product])
        result = torch.stack([down[e] @ row for e, row in zip(expert, product, strict=True)])
        plugin("GroupedMatmulOperation", [product, down, counts], [result])
        scaled = result.float() * weights.reshape(-1)[order].unsqueeze(-1)
        total = torch.zeros(x.shape, dtype=torch.float32).index_add(0, token.long(), scaled).half()
        plugin("MoeTokenUnpermuteOperation", [result, token, weights], [total])
        return total

    def _norm(self, x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
        if self._shape.norm == "layer":
            kinds = torch_atb.LayerNormParam
            normal = kinds.NormParam(
                epsilon=self._shape.eps, begin_norm_axis=1, begin_params_axis=1
            )
            param = kinds(layer_type=kinds.LayerNormType.LAYER_NORM_NORM, norm_param=normal)
            normed: Tensor = self._program.run(param, x, *weights)
            return normed
        rms = torch_atb.RmsNormParam
        param = rms(
            layer_type=rms.RmsNormType.RMS_NORM_NORM,
            norm_param=rms.NormParam(epsilon=self._shape.eps),
        )
        rms_normed: Tensor = self._program.run(param, x, *weights)
        return rms_normed

    def _linear(self, x: Tensor, weights: Linear) -> Tensor:
        weight, bias = weights
        param = torch_atb.LinearParam(transpose_b=True, has_bias=bias is not None)
        inputs = [x, weight] if bias is None else [x, weight, bias]
        result: Tensor = self._program.run(param, *inputs)
        return result

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        add = torch_atb.ElewiseParam.ElewiseType.ELEWISE_ADD
        result: Tensor = self._program.run(torch_atb.ElewiseParam(elewise_type=add), x, y)
        return result


def rotary_tables(
    dim: int, positions: int, theta: float = 10000.0, *, interleaved: bool = False
) -> tuple[Tensor, Tensor]:
    """Cosine and sine, ``[positions, dim]`` each."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    angles = torch.outer(torch.arange(positions).float(), theta**-exponents)
    angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), -1)
    return angles.cos().half(), angles.sin().half()
