"""One decoder written in several ways, with the same weights: what engines do with one model.

Projections joined or apart, experts that are modules or one tensor, latent attention with its
products absorbed, weights stored in few bits. Each way computes the same numbers but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F
from quantised_weights import E2M1, FORMATS
from torch import Tensor, nn

WORDS, HIDDEN, INNER, HEADS, LAYERS = 64, 64, 160, 4, 2
EXPERTS, CHOSEN, EXPERT_INNER = 4, 2, 32
NOPE, ROPE, VALUE, Q_RANK, KV_RANK = 16, 8, 12, 40, 24
GROUP = 32
PROMPT = (3, 41, 15, 9, 26, 53, 8)


def rotary(length: int, width: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine ``[length, width]``, both halves alike."""
    angles = torch.arange(length)[:, None] / 10000.0 ** (torch.arange(0, width, 2) / width)
    doubled = torch.cat([angles, angles], -1)
    return doubled.cos(), doubled.sin()


def rotated(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Halves of the last axis turned by the angles."""
    first, second = x.chunk(2, -1)
    return x * tables[0] + torch.cat([-second, first], -1) * tables[1]


class LatentAttention(nn.Module):
    """DeepSeek's attention; ``way`` is ``separate``, ``joined``, ``split`` or ``absorbed``."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self._way = way
        self.scaling = (NOPE + ROPE) ** -0.5
        if way == "joined":
            self.fused_qkv_a_proj = nn.Linear(HIDDEN, Q_RANK + KV_RANK + ROPE, bias=False)
        else:
            self.q_a_proj = nn.Linear(HIDDEN, Q_RANK, bias=False)
            self.kv_a_proj_with_mqa = nn.Linear(HIDDEN, KV_RANK + ROPE, bias=False)
        self.q_a_layernorm = nn.RMSNorm(Q_RANK, eps=1e-6)
        self.kv_a_layernorm = nn.RMSNorm(KV_RANK, eps=1e-6)
        self.q_b_proj = nn.Linear(Q_RANK, HEADS * (NOPE + ROPE), bias=False)
        if way == "split":
            self.k_b_proj = nn.Linear(KV_RANK, HEADS * NOPE, bias=False)
            self.v_b_proj = nn.Linear(KV_RANK, HEADS * VALUE, bias=False)
        elif way == "absorbed":
            self.w_uk = nn.Parameter(torch.empty(HEADS, NOPE, KV_RANK))
            self.w_uv = nn.Parameter(torch.empty(HEADS, KV_RANK, VALUE))
        else:
            self.kv_b_proj = nn.Linear(KV_RANK, HEADS * (NOPE + VALUE), bias=False)
        self.o_proj = nn.Linear(HEADS * VALUE, HIDDEN, bias=False)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        if self._way == "joined":
            q, kv = self.fused_qkv_a_proj(x).split([Q_RANK, KV_RANK + ROPE], -1)
        else:
            q, kv = self.q_a_proj(x), self.kv_a_proj_with_mqa(x)
        latent, shared = kv.split([KV_RANK, ROPE], -1)
        latent = self.kv_a_layernorm(latent)
        q = self.q_b_proj(self.q_a_layernorm(q)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        plain, turned = q.split([NOPE, ROPE], -1)
        turned, shared = rotated(turned, tables), rotated(shared.unsqueeze(1), tables)
        if self._way == "absorbed":
            asked = torch.einsum("bhsn,hnr->bhsr", plain, self.w_uk)
            scores = asked @ latent.unsqueeze(1).transpose(-1, -2) + turned @ shared.mT
            weights = (scores * self.scaling + mask).softmax(-1)
            context = torch.einsum("bhsr,hrv->bhsv", weights @ latent.unsqueeze(1), self.w_uv)
        else:
            if self._way == "split":
                k = self.k_b_proj(latent).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                v = self.v_b_proj(latent).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            else:
                both = self.kv_b_proj(latent).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                k, v = both.split([NOPE, VALUE], -1)
            k = torch.cat([k, shared.expand(-1, HEADS, -1, -1)], -1)
            scores = torch.cat([plain, turned], -1) @ k.transpose(-1, -2)
            context = (scores * self.scaling + mask).softmax(-1) @ v
        result: Tensor = self.o_proj(context.transpose(1, 2).flatten(-2))
        return result


class Attention(nn.Module):
    """Plain attention; ``way`` is ``joined`` or not."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self._way, self.heads = way, HEADS
        self.scaling = (HIDDEN // HEADS) ** -0.5
        if way == "joined":
            self.qkv_proj = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        else:
            for name in ("q_proj", "k_proj", "v_proj"):
                setattr(self, name, nn.Linear(HIDDEN, HIDDEN, bias=False))
        self.o_proj = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        if self._way == "joined":
            made = self.qkv_proj(x).chunk(3, -1)
        else:
            made = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in made)
        q, k = rotated(q, tables), rotated(k, tables)
        context = (q @ k.transpose(-1, -2) * self.scaling + mask).softmax(-1) @ v
        result: Tensor = self.o_proj(context.transpose(1, 2).flatten(-2))
        return result


class SwiGLU(nn.Module):
    """Gate, up and down; ``way`` is ``joined`` or not."""

    def __init__(self, inner: int = INNER, way: str = "separate") -> None:
        super().__init__()
        self._way = way
        if way == "joined":
            self.gate_up_proj = nn.Linear(HIDDEN, 2 * inner, bias=False)
        else:
            self.gate_proj = nn.Linear(HIDDEN, inner, bias=False)
            self.up_proj = nn.Linear(HIDDEN, inner, bias=False)
        self.act_fn = nn.SiLU()
        self.down_proj = nn.Linear(inner, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self._way == "joined":
            gate, up = self.gate_up_proj(x).chunk(2, -1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        result: Tensor = self.down_proj(self.act_fn(gate) * up)
        return result


class JoinedExperts(nn.Module):
    """All experts in two tensors, as ``transformers`` keeps them since version 5."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(EXPERTS, 2 * EXPERT_INNER, HIDDEN))
        self.down_proj = nn.Parameter(torch.empty(EXPERTS, HIDDEN, EXPERT_INNER))
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        for expert in chosen.unique().tolist():
            token, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = F.linear(x[token], self.gate_up_proj[expert]).chunk(2, -1)
            made = F.linear(self.act_fn(gate) * up, self.down_proj[expert])
            result.index_add_(0, token, made * weights[token, place, None])
        return result


class Experts(nn.Module):
    """A router and experts: ``joined`` in one module, or each a module of its own."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self._way = way
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        if way == "joined":
            self.experts: nn.Module = JoinedExperts()
        else:
            self.experts = nn.ModuleList(SwiGLU(EXPERT_INNER) for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.gate(rows).softmax(-1).topk(CHOSEN, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        if self._way == "joined":
            return self.experts(rows, chosen, weights).view_as(x)  # type: ignore[no-any-return]
        result = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):  # type: ignore[arg-type]
            token, place = (chosen == number).nonzero(as_tuple=True)
            if token.numel():
                result.index_add_(0, token, expert(rows[token]) * weights[token, place, None])
        return result.view_as(x)


class Layer(nn.Module):
    def __init__(self, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.self_attn = attention
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.mlp = mlp

    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), tables, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, layers, norm and head; weights are drawn, those of another way taken over."""

    def __init__(self, attention: Callable[[], nn.Module], mlp: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, HIDDEN)
        self.layers = nn.ModuleList(Layer(attention(), mlp()) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.lm_head = nn.Linear(HIDDEN, WORDS, bias=False)
        is_latent = isinstance(self.layers[0].self_attn, LatentAttention)
        self._turned = ROPE if is_latent else HIDDEN // HEADS
        draw = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for parameter in self.parameters():
                drawn = torch.randn(parameter.shape, generator=draw) * 0.15
                parameter.copy_(drawn + (parameter.ndim == 1))
        self.requires_grad_(False).eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        length = input_ids.shape[-1]
        tables = rotary(length, self._turned)
        mask = torch.full((length, length), -torch.inf).triu(1)
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, tables, mask)
        result: Tensor = self.lm_head(self.norm(x))
        return result


def latent(way: str) -> Decoder:
    """A decoder with latent attention, its weights those of ``separate``."""
    made = Decoder(lambda: LatentAttention(way), SwiGLU)
    if way != "separate":
        weights = latent("separate").state_dict()
        for number in range(LAYERS):
            _latent_weights(weights, f"layers.{number}.self_attn.", way)
        made.load_state_dict(weights)
    return made


def _latent_weights(weights: dict[str, Tensor], at: str, way: str) -> None:
    if way == "joined":
        parts = [weights.pop(f"{at}{name}.weight") for name in ("q_a_proj", "kv_a_proj_with_mqa")]
        weights[f"{at}fused_qkv_a_proj.weight"] = torch.cat(parts)
        return
    both = weights.pop(f"{at}kv_b_proj.weight").unflatten(0, (HEADS, NOPE + VALUE))
    if way == "split":
        weights[f"{at}k_b_proj.weight"] = both[:, :NOPE].flatten(0, 1)
        weights[f"{at}v_b_proj.weight"] = both[:, NOPE:].flatten(0, 1)
    else:
        weights[f"{at}w_uk"] = both[:, :NOPE].clone()
        weights[f"{at}w_uv"] = both[:, NOPE:].transpose(1, 2).contiguous()


def experts(way: str) -> Decoder:
    """A decoder with experts, its weights those of ``apart``."""
    made = Decoder(lambda: Attention("separate"), lambda: Experts(way))
    if way == "joined":
        weights = experts("apart").state_dict()
        for number in range(LAYERS):
            at = f"layers.{number}.mlp.experts."
            for name in ("gate_proj", "up_proj", "down_proj"):
                parts = [weights.pop(f"{at}{expert}.{name}.weight") for expert in range(EXPERTS)]
                weights[f"{at}{name}"] = torch.stack(parts)
            halves = [weights.pop(f"{at}{name}") for name in ("gate_proj", "up_proj")]
            weights[f"{at}gate_up_proj"] = torch.cat(halves, 1)
        made.load_state_dict(weights)
    return made


def plain(way: str) -> Decoder:
    """A decoder with plain attention, its weights those of ``separate``."""
    made = Decoder(lambda: Attention(way), lambda: SwiGLU(way=way))
    if way == "joined":
        weights = plain("separate").state_dict()
        for number in range(LAYERS):
            for block, whole, names in (
                ("self_attn", "qkv_proj", ("q_proj", "k_proj", "v_proj")),
                ("mlp", "gate_up_proj", ("gate_proj", "up_proj")),
            ):
                at = f"layers.{number}.{block}."
                parts = [weights.pop(f"{at}{name}.weight") for name in names]
                weights[f"{at}{whole}.weight"] = torch.cat(parts)
        made.load_state_dict(weights)
    return made


@cache
def _in_few_bits(
    form: str, size: tuple[int, ...], weight: bytes
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What is stored of a weight, and its numbers; each test makes the same decoder three times."""
    return FORMATS[form](np.frombuffer(weight).reshape(size), GROUP)


class QuantLinear(nn.Module):
    """A projection that keeps its weight in few bits, and makes numbers of it in each call.

    Args:
        weight: ``[out, in]``.
        form: of :data:`quantised_weights.FORMATS`.
    """

    def __init__(self, weight: Tensor, form: str) -> None:
        super().__init__()
        self._form, self._size = form, tuple(weight.shape)
        stored, real = _in_few_bits(form, self._size, weight.double().numpy().tobytes())
        for name, array in stored.items():
            self.register_buffer(name, as_torch(array))
        self._real = torch.from_numpy(real)
        assert torch.allclose(self.real(), self._real.float(), atol=1e-6)

    def real(self) -> Tensor:
        """The weight as float32 ``[out, in]``, made of what is stored."""
        if self._form == "compressed":
            data = _nibbles(self.weight_packed, 1)[:, : self._size[1]]
            zeros = _nibbles(self.weight_zero_point, 0)[: self._size[0]]
            each = zeros.repeat_interleave(GROUP, 1), self.weight_scale.repeat_interleave(GROUP, 1)
            return (data - each[0]).float() * each[1]
        if self._form == "fp8-blocks":
            scale = self.weight_scale_inv.repeat_interleave(128, 0).repeat_interleave(128, 1)
            return self.weight.float() * scale[: self._size[0], : self._size[1]]
        if self._form == "mxfp4":
            halves = torch.stack([self.weight_packed & 15, self.weight_packed >> 4], -1).flatten(1)
            sizes = torch.tensor(E2M1)[(halves & 7).long()]
            signed = torch.where(halves > 7, -sizes, sizes)
            scale = torch.exp2(self.weight_scale.float() - 127).repeat_interleave(32, 1)
            return signed * scale
        return self.weight.float() * self.weight_scale

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.real())


def _nibbles(words: Tensor, axis: int) -> Tensor:
    places = torch.arange(0, 32, 4)
    apart = words.unsqueeze(axis + 1) >> places.view([-1, 1] if axis == 0 else [-1]) & 15
    return apart.flatten(axis, axis + 1)


def as_torch(array: np.ndarray) -> Tensor:
    """An array as a tensor, the types of ml_dtypes included."""
    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(np.ascontiguousarray(array))


def stored(form: str) -> Decoder:
    """The plain decoder with the projections of its layers in few bits."""
    made = plain("separate")
    for name, module in list(made.layers.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, last = name.rpartition(".")
            setattr(made.layers.get_submodule(parent), last, QuantLinear(module.weight, form))
    return made


def restored(form: str) -> Decoder:
    """The plain decoder with the numbers that the bits of :func:`stored` stand for."""
    made = plain("separate")
    for module in made.layers.modules():
        if isinstance(module, nn.Linear):
            module.weight.copy_(QuantLinear(module.weight, form).real())
    return made


def scaled(model: Decoder, path: str, factor: float = 1.05) -> Decoder:
    """The same decoder, with the results of one module too large."""
    module = model.get_submodule(path)
    compute = module.forward
    module.forward = lambda *given: compute(*given) * factor  # type: ignore[method-assign]
    return model


def ask(model: nn.Module) -> None:
    """One pass over one prompt."""
    model(torch.tensor([PROMPT]))
