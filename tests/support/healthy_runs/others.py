"""Families of ``transformers`` that nothing here was made for, captured in several ways."""

from __future__ import annotations

from collections.abc import Iterator

from healthy_runs.any_family import source
from healthy_runs.model import Healthy

# Families by what they are asked for; those behind the bar have no attention but eager.
_FAMILIES = {
    "CAUSAL_LM": (
        "cohere cohere2 gpt_bigcode opt starcoder2 granite granitemoe olmo olmo2 olmoe phi "
        "persimmon nemotron glm glm4 biogpt ctrl lfm2 jetmoe helium exaone4 ernie4_5 ernie4_5_moe "
        "arcee hunyuan_v1_dense smollm3 seed_oss apertus bitnet modernbert-decoder "
        "minimax llama4_text deepseek_v2 dots1 glm4_moe phimoe flex_olmo nanochat "
        "qwen2_moe | vaultgemma openai-gpt bloom mpt gptj codegen xglm rwkv"
    ),
    "MASKED_LM": (
        "albert distilbert roberta electra layoutlm esm modernbert | mpnet squeezebert roformer "
        "nystromformer big_bird convbert rembert deberta longformer"
    ),
    "SEQ_TO_SEQ_CAUSAL_LM": "bart mbart plbart pegasus m2m_100 marian | led",
    "IMAGE_CLASSIFICATION": "vit deit dinov2",
}


def pairs() -> Iterator[Healthy]:
    """Other attention, other types, and captures of modules against those of operators."""
    for kind, text in _FAMILIES.items():
        every, _, rest = text.partition("|")
        eager = set(rest.split())
        for family in (*every.split(), *rest.split()):
            start = f"p/{family}"
            whole, parts, both = (
                source(kind, family, level) for level in ("modules", "operators", "both")
            )
            yield Healthy(f"{start}/modules-both", whole, both)
            yield Healthy(f"{start}/modules-operators", whole, parts)
            yield Healthy(
                f"{start}/bfloat16-modules",
                whole,
                source(kind, family, "modules", dtype="bfloat16"),
            )
            yield Healthy(
                f"{start}/float16-both", both, source(kind, family, "both", dtype="float16")
            )
            if family in eager:
                continue
            other = source(kind, family, "modules", "sdpa")
            yield Healthy(f"{start}/sdpa-modules", whole, other)
            yield Healthy(f"{start}/operators-sdpa", parts, other)
            yield Healthy(f"{start}/sdpa-both", both, source(kind, family, "both", "sdpa"))
