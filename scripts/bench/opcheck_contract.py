"""What the standard ``contract`` costs beside ``classic``, and golden attention beside NumPy.

    python scripts/bench/opcheck_contract.py [FAMILY ...]

One operator of each family, checked by both standards in turn: processor time of one thread, the
best of some rounds. Results are those of a kernel that adds up exactly and rounds once, of which a
few differ from golden's in their last bit, and for attention also those of one that stores
probabilities in 16 bits, and that of the device's default kernel. Then paged attention of 9
sequences of 14,000 int8 tokens and 32 heads, the largest case of the library's own tests, beside a
plain implementation in NumPy in the same run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from figures import figure
from torch import Tensor

from ait_llm.opcheck import check
from ait_llm.opcheck.golden import EXACT, GOLDEN, golden_ops
from ait_llm.opcheck.selftest.emulations import emulations

FACTOR = 2.0
ROUNDS = 3
CORRECT = replace(EXACT, round_output=True)
Inputs = list[Tensor | None]


@dataclass(frozen=True)
class Family:
    """One operator with inputs; ``results`` are a kernel's, correctly rounded unless given."""

    name: str
    op: str
    inputs: Inputs
    params: dict[str, Any]
    results: list[Tensor] | None = None


def floats(*shape: int, dtype: torch.dtype = torch.float16, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape) * scale).to(dtype)


def families() -> Iterator[Family]:
    """One of each kind of arithmetic, at sizes of a model."""
    linear = {"hasBias": False, "transposeB": True}
    yield Family("product", "Linear", [floats(128, 2048), floats(2048, 2048, scale=0.02)], linear)
    biased = {"hasBias": True, "transposeB": True}
    inputs: Inputs = [floats(128, 2048), floats(2048, 2048, scale=0.02), floats(2048)]
    yield Family("product and bias", "Linear", inputs, biased)
    norm = {"layerType": 1, "normParam": {"epsilon": 1e-6, "quantType": 0}}
    yield Family("rms norm", "RmsNorm", [floats(512, 2048), floats(2048)], norm)
    norm = {
        "layerType": 1,
        "normParam": {"epsilon": 1e-5, "beginNormAxis": 1, "beginParamsAxis": 1, "quantType": 0},
    }
    yield Family("layer norm", "LayerNorm", [floats(512, 2048), floats(2048), floats(2048)], norm)
    yield Family("softmax", "Softmax", [floats(512, 2048)], {"axes": [-1]})
    yield Family("activation", "Activation", [floats(512, 2048)], {"activationType": 2})
    yield Family("element-wise", "Elewise", [floats(512, 2048)] * 2, {"elewiseType": 8})
    lengths = torch.tensor([256], dtype=torch.int32)
    heads = [floats(256, 2048), floats(256, 2048), floats(256, 64), floats(256, 64), lengths]
    yield Family("rotary", "Rope", [*heads], {"rotaryCoeff": 2, "cosFormat": 0})
    yield Family("movement", "Transpose", [floats(512, 2048)], {"perm": [1, 0]})
    for dtype in (torch.float16, torch.bfloat16):
        yield from _attention(dtype)


def _attention(dtype: torch.dtype) -> Iterator[Family]:
    name = str(dtype).removeprefix("torch.")
    tokens, heads, size, block = 512, 8, 128, 128
    query, key, value = (floats(tokens, heads, size, dtype=dtype) for _ in range(3))
    params = {"headNum": heads, "kvHeadNum": heads, "qkScale": size**-0.5}
    lengths = torch.tensor([tokens], dtype=torch.int32)
    inputs: Inputs = [query, key, value, lengths]
    prefill = {**params, "calcType": 3, "maskType": 0}
    yield Family(f"attention {name}", "SelfAttention", inputs, prefill)
    stored = _stored(query, key, value, size**-0.5)
    precise = {**prefill, "kernelType": 1}
    yield Family(f"attention {name}, stored", "SelfAttention", inputs, precise, [stored])
    if dtype == torch.float16:  # what the device's default kernel makes
        arrays = [None if one is None else one.numpy() for one in inputs]
        made = emulations["SelfAttentionOperation"](arrays, prefill)
        results = [torch.from_numpy(one) for one in made or ()]
        yield Family(f"attention {name}, device", "SelfAttention", inputs, prefill, results)
    blocks = 4 * tokens // block
    caches = [floats(blocks, block, heads, size, dtype=dtype) for _ in range(2)]
    table = torch.arange(blocks).int().reshape(4, -1)
    contexts = torch.full((4,), tokens, dtype=torch.int32)
    one = floats(4, heads, size, dtype=dtype)
    yield Family(
        f"paged attention {name}", "PagedAttention", [one, *caches, table, contexts], params
    )
    rows = [
        _stored(one[i : i + 1], *(c[table[i].long()].flatten(0, 1) for c in caches), size**-0.5)
        for i in range(4)
    ]
    inputs = [one, *caches, table, contexts]
    yield Family(
        f"paged attention {name}, stored", "PagedAttention", inputs, params, [torch.cat(rows)]
    )


def _stored(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Attention that stores probabilities in the inputs' 16 bits."""
    scores = query.float().transpose(0, 1) @ key.float().permute(1, 2, 0) * scale
    found = scores.softmax(-1).to(query.dtype).float() @ value.float().transpose(0, 1)
    return found.transpose(0, 1).to(query.dtype)


def _seconds(function: Callable[[], Any], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def standards(names: list[str]) -> bool:
    """Print the table of families; True if one misses the target."""
    missed = False
    print(f"{'family':34}{'classic':>10}{'contract':>10}  times")
    for family in families():
        if names and family.name not in names:
            continue
        results = family.results
        if results is None:
            op = golden_ops.get(f"{family.op}Operation")
            with torch.no_grad():
                results = list(op.compute(family.inputs, family.params, CORRECT).outputs)

        def run(standard: str, family: Family = family, results: Any = results) -> None:
            found = check(
                family.op, family.inputs, family.params, outputs=results, standard=standard
            )
            if standard == "contract" and not found:
                raise RuntimeError(f"{family.name}: {found}")

        run("contract")  # imports and threads
        classic, contract = (_seconds(lambda s=s: run(s)) for s in ("classic", "contract"))
        missed |= contract > FACTOR * classic
        times = contract / classic
        print(f"{family.name:34}{classic:8.3f} s{contract:8.3f} s  {times:.2f}", flush=True)
        figure(f"contract beside classic, {family.name}", times, "times", at_most=FACTOR)
    return missed


def paged() -> bool:
    """Print golden paged attention beside NumPy; True if it is slower."""
    sequences, tokens, heads, kv_heads, size, block = 9, 14000, 32, 2, 128, 128
    generator = np.random.default_rng(0)
    query = generator.integers(-100, 101, (sequences, heads, size), dtype=np.int8)
    caches = [
        generator.integers(-100, 101, (64, block, kv_heads, size), dtype=np.int8) for _ in range(2)
    ]
    table = generator.integers(0, 64, (sequences, -(-tokens // block)), dtype=np.int32)
    mask = (generator.random((sequences, 1, tokens), dtype=np.float32) * -4).astype(np.float16)
    scales = [generator.random(heads, dtype=np.float32) * 1e-4 for _ in range(2)]
    params = {
        **{"headNum": heads, "qkScale": size**-0.5, "kvHeadNum": kv_heads, "maskType": 1},
        **{"quantType": 3, "outDataType": 1},
    }
    contexts = np.full(sequences, tokens, dtype=np.int32)
    arrays = [query, *caches, table, contexts, mask, *scales]
    inputs: Inputs = [torch.from_numpy(array) for array in arrays]
    op = golden_ops.get("PagedAttentionOperation")

    def golden() -> Tensor:
        with torch.no_grad():
            return op.compute(inputs, params, GOLDEN).outputs[0]

    def plain() -> np.ndarray:
        return _numpy_paged(query, caches, table, mask, scales, size**-0.5, tokens)

    difference = np.abs(golden().float().numpy() - plain().astype(np.float32)).max()
    own, peer, clock_own, clock_peer = float("inf"), float("inf"), float("inf"), float("inf")
    for _ in range(ROUNDS):  # in turn
        start = time.perf_counter()
        own = min(own, _seconds(golden, 1))
        clock_own, start = min(clock_own, time.perf_counter() - start), time.perf_counter()
        peer = min(peer, _seconds(plain, 1))
        clock_peer = min(clock_peer, time.perf_counter() - start)
    print(
        f"paged attention, {sequences} x {tokens} int8 tokens, {heads} heads: golden {own:.2f} s "
        f"({clock_own:.2f} s on the clock), NumPy {peer:.2f} s ({clock_peer:.2f} s), "
        f"largest difference {difference:.3g}"
    )
    what = f"golden paged attention beside NumPy, {sequences} x {tokens} int8 tokens, {heads} heads"
    figure(what, own / peer, "times NumPy's time", at_most=1)
    return own > peer


def _numpy_paged(
    query: Any, caches: Any, table: Any, mask: Any, scales: Any, scale: float, tokens: int
) -> Any:
    """One sequence after another, groups of heads one after another, as tests write it down."""
    found = []
    for number, row in enumerate(query):
        pages = table[number]
        keys, values = (cache[pages].reshape(-1, *cache.shape[2:])[:tokens] for cache in caches)
        groups = len(row) // keys.shape[1]
        parts = []
        for head in range(keys.shape[1]):
            own = slice(head * groups, (head + 1) * groups)
            product = row[own].astype(np.float32) @ keys[:, head].T.astype(np.float32)
            scores = product * scales[0][own, None] * np.float32(scale)
            scores = scores + mask[number].astype(np.float32)
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            whole = []
            for start in range(0, tokens, 512):
                part = powers[:, start : start + 512]
                step = part.max(-1, keepdims=True) / np.float32(127)
                step[step == 0] = 1
                whole.append(np.rint((part / step).astype(np.float16).astype(np.float32)) * step)
            weighted = np.concatenate(whole, -1) @ values[:, head].astype(np.float32)
            parts.append(weighted * scales[1][own, None] / powers.sum(-1, keepdims=True))
        found.append(np.concatenate(parts))
    return np.stack(found).astype(np.float16)


def main() -> int:
    """Print both; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="only these")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    missed = standards(given.families)
    if not given.families:
        missed |= paged()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
