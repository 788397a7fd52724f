"""Decoders on hostatb as people write them: operations that several passes share, no model told.

``python shared_decoder.py TABLE PROGRAM...`` runs each program in a process of its own and writes
to TABLE, by program, the process and which operation ran for which time in which pass.
``python shared_decoder.py --twin`` runs the transformers twin of the program ``table``.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.hostatb.models import blocks, llama_layers
from ait_llm.hostatb.models.config import LLAMA_PRESETS, LlamaConfig
from ait_llm.hostatb.models.kv_cache import PagedCache
from ait_llm.hostatb.models.llama import causal_mask, pack_weights, rotary_tables
from ait_llm.hostatb.models.weights import llama_weights

CONFIG = replace(LLAMA_PRESETS["tiny"], num_layers=3, max_positions=512)
DRAFT = replace(CONFIG, hidden_size=32, num_layers=2, num_heads=2, num_kv_heads=1)
PROMPT = (7, 100, 23, 42, 250, 3, 77)
ANSWER = (198, 17, 45)


@dataclass
class Passes:
    """Which pass each execution belongs to: what a reader of the dump has to find out."""

    number: int = -1
    of: dict[str, int] = field(default_factory=dict)
    runs: Counter[int] = field(default_factory=Counter)

    def run(self, operation: torch_atb.Operation, *inputs: Tensor) -> list[Tensor]:
        outputs = operation.forward(list(inputs))
        (top,) = operation.op_id.parts  # type: ignore[union-attr]  # it ran, so it has one
        self.of[f"{top} {self.runs[top]}"] = self.number
        self.runs[top] += 1
        return outputs


class Decoder:
    """A Llama whose embedding, last norm and head serve prefill and decode.

    Args:
        passes: told of each execution.
        config: the shape.
        one_graph: one graph of a layer runs for all layers.
        pieces: layers are no graphs; one operation of each kind runs wherever it is needed.
        outside: the embedding is computed without ATB.
        gathers: positions are looked up by an operation, else without ATB.
        shared: embedding, last norm and head serve both phases, else each phase has its own.
    """

    def __init__(
        self,
        passes: Passes,
        config: LlamaConfig = CONFIG,
        *,
        one_graph: bool = False,
        pieces: bool = False,
        outside: bool = False,
        gathers: bool = False,
        shared: bool = True,
    ) -> None:
        self.passes, self.config = passes, config
        self.outside, self.gathers = outside, gathers
        self.weights = pack_weights(config, llama_weights(config, 0))
        self.tables = rotary_tables(config, config.max_positions)
        self.cache = PagedCache(config, 64, 16)
        # an operation has its number from its first execution, so the order here means nothing
        ends = {prefill: self._ends() for prefill in (True, False)}
        self.ends = {True: ends[True], False: ends[True] if shared else ends[False]}
        count = 1 if one_graph else config.num_layers
        self.layers = {
            prefill: [llama_layers.decoder_layer(config, prefill=prefill) for _ in range(count)]
            * (config.num_layers if one_graph else 1)
            for prefill in (True, False)
        }
        self.pieces = self._pieces() if pieces else {}

    def _pieces(self) -> dict[str, torch_atb.Operation]:
        config = self.config
        swiglu = torch_atb.ActivationType.ACTIVATION_SWIGLU_FORWARD
        return {
            "norm": blocks.rms_norm(config.rms_norm_eps),
            "linear": blocks.linear(bias=False),
            "split": blocks.split([config.hidden_size, config.kv_size, config.kv_size]),
            "rotary": torch_atb.Operation(torch_atb.RopeParam(rotary_coeff=2)),
            "store": torch_atb.Operation(torch_atb.ReshapeAndCacheParam()),
            "attention": torch_atb.Operation(
                torch_atb.PagedAttentionParam(
                    head_num=config.num_heads,
                    kv_head_num=config.num_kv_heads,
                    qk_scale=config.head_dim**-0.5,
                )
            ),
            "swiglu": torch_atb.Operation(
                torch_atb.ActivationParam(activation_type=swiglu, dim=-1)
            ),
            "add": blocks.add(),
        }

    def _layer(self, weights: Sequence[Tensor], hidden: Tensor, *others: Tensor) -> Tensor:
        """A layer piece by piece: each token attends to what the cache holds."""
        run, pieces, dim = self.passes.run, self.pieces, self.config.head_dim
        cos, sin, keys, values, tables, places, lengths = others
        (normed,) = run(pieces["norm"], hidden, weights[0])
        (packed,) = run(pieces["linear"], normed, weights[1])
        query, key, value = run(pieces["split"], packed)
        rows = torch.tensor([len(hidden)], dtype=torch.int32)
        query, key = run(pieces["rotary"], query, key, cos, sin, rows)
        heads = [tensor.reshape(len(hidden), -1, dim) for tensor in (query, key, value)]
        run(pieces["store"], *heads[1:], keys, values, places)
        (context,) = run(pieces["attention"], heads[0], keys, values, tables, lengths)
        (attended,) = run(pieces["linear"], context.reshape(len(hidden), -1), weights[2])
        (residual,) = run(pieces["add"], hidden, attended)
        (normed,) = run(pieces["norm"], residual, weights[3])
        (wide,) = run(pieces["linear"], normed, weights[4])
        (product,) = run(pieces["swiglu"], wide)
        (down,) = run(pieces["linear"], product, weights[5])
        return run(pieces["add"], residual, down)[0]

    def _ends(self) -> dict[str, torch_atb.Operation]:
        return {
            "embedding": blocks.gather(),
            "positions": llama_layers.positional_embedding(),
            "norm": blocks.rms_norm(self.config.rms_norm_eps),
            "head": blocks.linear(bias=False),
        }

    def step(self, tokens: Sequence[int], start: int, *, prefill: bool, sequence: int = 0) -> None:
        """One forward pass over new tokens of a sequence."""
        run, weights, ends = self.passes.run, self.weights, self.ends[prefill]
        self.passes.number += 1
        stop = start + len(tokens)
        self.cache.reserve(sequence, stop)
        ids = torch.tensor(tokens) % self.config.vocab_size
        positions = torch.arange(start, stop)
        slots = [self.cache.slot(sequence, place) for place in range(start, stop)]
        if self.outside:
            hidden = weights["embed_tokens"][ids]
        else:
            (hidden,) = run(ends["embedding"], weights["embed_tokens"], ids)
        if self.gathers:
            cos, sin = run(ends["positions"], positions, *self.tables)
        else:
            cos, sin = (table[positions] for table in self.tables)
        mask = causal_mask(len(tokens), self.config.dtype)
        tables = self.cache.block_tables(range(sequence, sequence + 1))
        lengths = torch.tensor([len(tokens) if prefill else stop], dtype=torch.int32)
        places = torch.tensor(slots, dtype=torch.int32)
        for layer, operation in enumerate(self.layers[prefill]):
            own = [weights[f"{name}.{layer}"] for name in llama_layers.LAYER_WEIGHTS]
            caches = [self.cache.keys[layer], self.cache.values[layer]]
            if self.pieces:
                spread = tables.repeat(len(tokens), 1)
                seen = (positions + 1).to(torch.int32)
                hidden = self._layer(own, hidden, cos, sin, *caches, spread, places, seen)
                continue
            state = [mask, *caches] if prefill else [*caches, tables]
            (hidden,) = run(operation, *own, hidden, cos, sin, *state, places, lengths)
        (normed,) = run(ends["norm"], hidden, weights["norm"])
        run(ends["head"], normed, weights["lm_head"])

    def answer(self, prompt: Sequence[int], answer: Sequence[int], sequence: int = 0) -> None:
        """Prefill, then a pass for each token of the answer."""
        self.step(prompt, 0, prefill=True, sequence=sequence)
        for place, token in enumerate(answer):
            self.step([token], len(prompt) + place, prefill=False, sequence=sequence)


def table(passes: Passes) -> None:
    Decoder(passes).answer(PROMPT, ANSWER)


def gathered(passes: Passes) -> None:
    Decoder(passes, gathers=True).answer(PROMPT, ANSWER)


def apart(passes: Passes) -> None:
    """Each phase has all operations of its own."""
    Decoder(passes, gathers=True, shared=False).answer(PROMPT, ANSWER)


def requests(passes: Passes) -> None:
    """Three requests one after another, one of them a second time."""
    model = Decoder(passes, gathers=True)
    model.answer(PROMPT, ANSWER)
    model.answer(PROMPT[:4], ANSWER[1:], sequence=1)
    model.answer(PROMPT, ANSWER, sequence=2)


def chunks(passes: Passes) -> None:
    """A prompt in three pieces."""
    model = Decoder(passes)
    model.step(PROMPT[:3], 0, prefill=True)
    model.step(PROMPT[3:6], 3, prefill=True)
    model.step(PROMPT[6:], 6, prefill=True)
    for place, token in enumerate(ANSWER):
        model.step([token], 7 + place, prefill=False)


def speculative(passes: Passes) -> None:
    """A small model proposes three tokens, a large one looks at all of them at once."""
    draft, target = Decoder(passes, DRAFT, gathers=True), Decoder(passes)
    draft.step(PROMPT, 0, prefill=True)
    target.step(PROMPT, 0, prefill=True)
    for start in (7, 11):
        for place, token in enumerate(ANSWER):
            draft.step([token], start + place, prefill=False)
        target.step([token % 250 for token in (9, *ANSWER)], start, prefill=True)


def warm(passes: Passes) -> None:
    model = Decoder(passes)
    model.step([5] * 40, 0, prefill=True)
    model.step([5], 40, prefill=False)
    model.answer(PROMPT, ANSWER, sequence=1)


def one_graph(passes: Passes) -> None:
    Decoder(passes, one_graph=True).answer(PROMPT, ANSWER)


def pieces(passes: Passes) -> None:
    Decoder(passes, pieces=True).answer(PROMPT, ANSWER)


def overflow(passes: Passes) -> None:
    """All is NaN from the second layer on."""
    model = Decoder(passes)
    model.weights["qkv_weight.1"] = torch.full_like(model.weights["qkv_weight.1"], torch.inf)
    model.answer(PROMPT, ANSWER)


def outside(passes: Passes) -> None:
    Decoder(passes, outside=True).answer(PROMPT, ANSWER)


def one_token(passes: Passes) -> None:
    """A prompt of one token: prefill and decode have the same shapes."""
    Decoder(passes).answer(PROMPT[:1], ANSWER)


PROGRAMS: dict[str, Callable[[Passes], None]] = {
    each.__name__: each
    for each in (
        table,
        gathered,
        apart,
        requests,
        chunks,
        speculative,
        warm,
        one_graph,
        pieces,
        overflow,
        outside,
        one_token,
    )
}


@torch.no_grad()
def twin() -> None:
    """The model of ``table`` by transformers, with the same weights and tokens."""
    import transformers

    shape = transformers.LlamaConfig(
        hidden_size=CONFIG.hidden_size,
        intermediate_size=CONFIG.intermediate_size,
        num_hidden_layers=CONFIG.num_layers,
        num_attention_heads=CONFIG.num_heads,
        num_key_value_heads=CONFIG.num_kv_heads,
        vocab_size=CONFIG.vocab_size,
        max_position_embeddings=CONFIG.max_positions,
        rms_norm_eps=CONFIG.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": CONFIG.rope_theta},
        tie_word_embeddings=False,
    )
    model = transformers.LlamaForCausalLM(shape).to(CONFIG.dtype).eval()
    model.load_state_dict(llama_weights(CONFIG, 0), strict=True)
    past = None
    for tokens in (PROMPT, *((token,) for token in ANSWER)):
        out = model(torch.tensor([tokens]), past_key_values=past, use_cache=True)
        past = out.past_key_values


def main() -> None:
    """Run the twin or programs."""
    if sys.argv[1] == "--twin":
        twin()
        return
    found = {}
    for name in sys.argv[2:]:
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            passes = Passes()
            PROGRAMS[name](passes)
            os.write(writes, json.dumps(passes.of).encode())
            sys.exit(0)
        os.close(writes)
        with os.fdopen(reads) as file:
            found[name] = {"pid": child, "passes": json.loads(file.read())}
        assert os.waitpid(child, 0)[1] == 0
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
