"""Where a captured attention module keeps what its code computes with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ait_llm.core import DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import FormatError
from ait_llm.formats.elements import Array
from ait_llm.judge.attention_formula import Formula, Given

# Names of members that make queries, keys and values, or all of them at once.
QUERY = re.compile(r"(w?q|to_q|query)(_b)?(_?(proj|lin|linear|norm|layernorm|ln))?|norm_q")
KEY = re.compile(r"(w?k|to_k|key)(_?(proj|lin|linear|norm|layernorm|ln))?|norm_k")
VALUE = re.compile(r"(w?v|to_v|value)(_?(proj|lin|linear|norm))?")
JOINED = re.compile(r"w?qkv(_?(proj|linear))?|c_attn|query_key_value|in_proj", re.IGNORECASE)
# Those of latent attention (DeepSeek-V2), and widths of what is not turned by positions, of what
# is, and of values.
UP, DOWN = "kv_b_proj", "kv_a_proj_with_mqa"
LATENT = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_TABLES = re.compile(r"rotary|rope")
_PAST = re.compile(r"past.*?(?P<what>key|value)s?$")
_SORT = re.compile(r"self|cross")
_SINKS = "sinks"

Layout = Literal["tokens", "heads", "blocks", "groups", "latent"]


def is_part(name: str) -> bool:
    """True for a member of an attention that makes queries, keys or values, by its name."""
    patterns = (QUERY, KEY, VALUE, JOINED)
    return name == UP or any(each.fullmatch(name) for each in patterns)


@dataclass(frozen=True, slots=True)
class Part:
    """Queries, keys or values among the results of a member.

    Attributes:
        member: its name within the module.
        layout: ``tokens`` for ``[B, T, heads, width]`` (joined or not), ``heads`` for
            ``[B, heads, T, width]``; of a joined projection ``blocks`` where all heads of one
            part lie together, ``groups`` where each key's head lies with its queries'; ``latent``
            where keys and values are made of one vector of few elements.
        place: 0 for queries, 1 for keys, 2 for values.
        heads: of the part.
        queries, shared: heads of the queries, and of the keys.
    """

    member: str
    layout: Layout
    place: int
    heads: int
    queries: int
    shared: int


Parts = tuple[Part, Part, Part]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to read an attention.

    Attributes:
        parts: queries, keys and values.
        formula: what is computed of them.
        tables: stems of cosines and sines; a member comes before a slash.
        masks: stems of what is added to the scores, such as a mask and a bias of positions.
        past: stems of the keys and values of earlier passes.
    """

    parts: Parts
    formula: Formula
    tables: tuple[str, str] | None
    masks: tuple[str, ...]
    past: tuple[str, str] | None


class Attention:
    """One call of an attention module.

    Args:
        module: the call.
        members: the calls directly within it, in execution order.
        root: the call of the whole model, whose definition may hold a configuration.
        result: what the code between projections made, ``[B, T, width]``.
    """

    def __init__(
        self, module: Operation, members: Sequence[Operation], root: Operation, result: Tensor
    ) -> None:
        self.module = module
        self.result = result
        start = len(module.name) + 1
        self._members = {each.name[start:]: each for each in members}
        self._root = root
        self._read: dict[tuple[str, str], Array] = {}

    def given(self, recipe: Recipe, other: Attention | None = None) -> Given | None:
        """The values of a recipe; None where they are not here, or of other shapes.

        Args:
            recipe: what is read.
            other: the same attention of another run. Its masks stand in for those that this one
                does not get, because its kernels hide later keys by themselves.
        """
        try:
            return self._given(recipe, other)
        except (FormatError, ValueError, KeyError):
            return None

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """What the module states, and what it does not from the configuration of the model."""
        whole = self._root.definition
        config = {
            name.rpartition(".")[2]: each for name, each in whole.items() if "config." in name
        }
        return {**config, **self.module.definition}

    @property
    def sinks(self) -> Tensor | None:
        """Scores that the module holds for each head."""
        own = self.module.parameters
        return next((own[name] for name in own if name.rpartition(".")[2] == _SINKS), None)

    def last(self, pattern: re.Pattern[str]) -> str:
        """The last member of a name that has one result; empty if there is none."""
        found = [name for name in self._members if pattern.fullmatch(name)]
        return next((name for name in found[::-1] if len(self._members[name].outputs) == 1), "")

    def has(self, *names: str) -> bool:
        """True if there are members of all these names, with what they make."""
        return all(name in self._members and self._members[name].outputs for name in names)

    def order(self, member: str) -> int:
        """Place of a member in execution order."""
        return list(self._members).index(member)

    def made(self, member: str) -> Tensor:
        """The result of a member."""
        return self._members[member].outputs[0]

    def tensor(self, stem: str) -> Tensor:
        """A tensor of the module, or of a member before a slash.

        Raises:
            KeyError: there is none.
        """
        member, _, name = stem.rpartition("/")
        holder = self._members[member] if member else self.module
        return {each.stem: each for each in (*holder.inputs, *holder.outputs)}[name]

    def places(self) -> Iterator[tuple[str, Sequence[Tensor]]]:
        """What the module gets, and what its rotary members make, with what precedes stems."""
        yield "", self.module.inputs
        for name, each in self._members.items():
            if _TABLES.search(name):
                yield f"{name}/", each.outputs

    def pasts(self) -> Iterator[tuple[str, str]]:
        """Keys and values of earlier passes that the module gets."""
        found: dict[str, dict[str, str]] = {}
        for tensor in self.module.inputs:
            known = _PAST.search(tensor.stem)
            if known and len(tensor.shape) == 4:
                sort = _SORT.search(tensor.stem)
                found.setdefault(sort[0] if sort else "", {})[known["what"]] = tensor.stem
        for each in found.values():
            if each.keys() >= {"key", "value"}:
                yield each["key"], each["value"]

    def _given(self, recipe: Recipe, other: Attention | None) -> Given | None:
        batch, tokens, _ = self.result.shape
        query, key, value = (self._part(part) for part in recipe.parts)
        result = self._values(self.result).reshape(batch, tokens, recipe.parts[0].heads, -1)
        masks = tuple(self._mask(stem, other) for stem in recipe.masks)
        sinks = self.sinks
        past = None if recipe.past is None else self._two(recipe.past, 4)
        heads = query.shape[1], key.shape[1], value.shape[1]
        if (
            heads != tuple(part.heads for part in recipe.parts)
            or (past is not None and any(each.shape[1] != heads[1] for each in past))
            or (sinks is not None and sinks.shape != (heads[0],))
            or any(mask.ndim != 4 or mask.shape[1] not in (1, heads[0]) for mask in masks)
        ):
            return None
        return Given(
            query,
            key,
            value,
            result.transpose(0, 2, 1, 3),
            self._dtype(recipe.parts),
            tables=None if recipe.tables is None else self._two(recipe.tables, 3),
            masks=masks,
            past=past,
            sinks=None if sinks is None else self._values(sinks),
        )

    def _dtype(self, parts: Parts) -> DType:
        """The coarsest type on the way: what is computed in 16 bits may be handed on in more."""
        types = [self.result.dtype, *(self.made(part.member).dtype for part in parts)]
        return min(types, key=lambda each: each.bits)

    def _part(self, part: Part) -> Array:
        """``[B, heads, T, width]``."""
        values = self._values(self.made(part.member))
        if part.layout == "heads":
            return values
        if part.layout == "latent":
            return self._of_latent(part, values)
        batch, tokens = values.shape[:2]
        groups, shared = part.queries // part.shared, part.shared
        ends = [0, part.queries, part.queries + shared, part.queries + 2 * shared]
        if part.layout == "tokens":
            found = values.reshape(batch, tokens, part.heads, -1)
        elif part.layout == "blocks":
            found = values.reshape(batch, tokens, ends[-1], -1)
            found = found[:, :, ends[part.place] : ends[part.place + 1]]
        else:
            found = values.reshape(batch, tokens, shared, groups + 2, -1)
            own = (slice(0, groups), slice(groups, groups + 1), slice(groups + 1, None))
            found = found[:, :, :, own[part.place]]
            found = found.reshape(batch, tokens, -1, found.shape[-1])
        turned: Array = found.transpose(0, 2, 1, 3)
        return turned

    def _of_latent(self, part: Part, values: Array) -> Array:
        """The same; of queries and keys what is turned comes first, as it does in tables."""
        batch, tokens, _ = self.result.shape
        plain, turned, _ = (self.module.definition[name] for name in LATENT)
        heads: Array = values.reshape(batch, tokens, part.heads, -1).transpose(0, 2, 1, 3)
        if part.place == 2:
            return heads[..., plain:]
        if part.place == 0:
            return np.concatenate((heads[..., plain:], heads[..., :plain]), -1)
        shared = self._values(self.made(DOWN))[:, None, :, -turned:]
        shared = np.broadcast_to(shared, (*heads.shape[:3], turned))
        return np.concatenate((shared, heads[..., :plain]), -1)

    def _two(self, stems: tuple[str, str], dims: int) -> tuple[Array, Array]:
        one, other = (self._values(self.tensor(stem)) for stem in stems)
        missing = (None,) * (dims - one.ndim)
        return one[missing], other[missing]

    def _mask(self, stem: str, other: Attention | None) -> Array:
        if other is not None and self.module.params.get(stem, 0) is None:
            return other._mask(stem, None)
        return self._values(self.tensor(stem))

    def _values(self, tensor: Tensor) -> Array:
        """Values as they are stored; read once."""
        key = tensor.stem, str(tensor.path)
        if key not in self._read:
            self._read[key] = tensor.nd()
        return self._read[key]
