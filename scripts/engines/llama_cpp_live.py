"""Captures llama.cpp as it runs, makes the golden run, compares, and prints a table.

    scripts/engines/llama_cpp_live.py --venv DIR [--work DIR] [CASE ...]

The virtual environment needs llama-cpp-python, gguf, safetensors and ml-dtypes (the first is built
from source, some minutes); this interpreter needs ait-llm, torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 96,
            "norm_topk_prob": True,  # as llama.cpp computes the family
        },
    ),
    # A window that the prompt of seven tokens does not fit into.
    "gemma2": (
        "Gemma2",
        {"sliding_window": 4, "query_pre_attn_scalar": 16, "tie_word_embeddings": True},
    ),
}
HEALTHY = {
    "llama F32": ("llama", "F32", ()),
    "llama F16": ("llama", "F16", ()),
    "llama BF16": ("llama", "BF16", ()),
    "llama Q8_0": ("llama", "Q8_0", ()),
    "llama Q4_0": ("llama", "Q4_0", ()),
    "llama flash attention": ("llama", "F32", ("-fa",)),
    "llama in parts of 4 tokens": ("llama", "F32", ("-ub",)),
    "llama two sequences": ("llama", "F32", ("-two",)),
    "llama two sequences in one cache": ("llama", "F32", ("-two", "-u")),
    "qwen2 F32": ("qwen2", "F32", ()),
    "qwen3 F32": ("qwen3", "F32", ()),
    "mixtral F32": ("mixtral", "F32", ()),
    "qwen3_moe F32": ("qwen3_moe", "F32", ()),
    "gemma2 F32": ("gemma2", "F32", ()),
    "gemma2 flash attention": ("gemma2", "F32", ("-fa",)),
}
FAULTS = {
    "llama weight": ("llama", "weight", ("ffn_out_1",)),
    "llama epsilon": ("llama", "epsilon", ("attn_norm_0",)),
    "llama theta": ("llama", "theta", ("Qcur_0_2", "Kcur_0_2")),
    "llama unpermuted": ("llama", "unpermuted", ("Qcur_0", "Qcur_0_2")),
    "llama swapped": ("llama", "swapped", ("ffn_swiglu_1", "ffn_gate_1", "ffn_up_1")),
    "llama norm": ("llama", "norm", ("ffn_norm_1",)),
    "llama embedding": ("llama", "embedding", ("embd",)),
    "llama epsilon, two sequences": ("llama", "epsilon", ("attn_norm_0",), ("-two",)),
    "llama weight, two sequences": ("llama", "weight", ("ffn_out_1",), ("-two",)),
    "mixtral weight of an expert": ("mixtral", "expert", ("ffn_moe_down_1",)),
    "mixtral fewer experts": ("mixtral", "experts", ("ffn_moe_topk_0", "ffn_moe_weights_0")),
    "qwen3_moe router": ("qwen3_moe", "router", ("ffn_moe_logits_1",)),
    "qwen3_moe epsilon": ("qwen3_moe", "epsilon", ("attn_norm_0",)),
    "gemma2 window": ("gemma2", "window", ("kq_soft_max_0",)),
    "gemma2 cap of scores": ("gemma2", "cap", ("kq_scaled_1_0",)),
    "gemma2 norm": ("gemma2", "norm", ("attn_post_norm_1",)),
    "qwen2 bias": ("qwen2", "bias", ("Vcur_1", "Vcur_1_1")),
    "qwen2 theta": ("qwen2", "theta", ("Qcur_0_3", "Kcur_0_3", "Qcur_0_2", "Kcur_0_2")),
}


class Runs:
    """Captures and comparisons in one folder.

    Args:
        python: of the environment with llama.cpp.
        work: the folder.
    """

    def __init__(self, python: Path, work: Path) -> None:
        self._python, self._work = python, work

    def compare(
        self, family: str, kind: str, options: tuple[str, ...], fault: str = ""
    ) -> dict[str, Any]:
        """The result of a comparison, and what the program said with and without the capture."""
        checkpoint = self._checkpoint(family)
        name = "-".join(filter(None, (family, kind, fault, *options)))
        file, mine, golden = (self._work / f"{name}{end}" for end in (".gguf", "-mine", "-golden"))
        convert = [self._python, HERE / "gguf_checkpoint.py"]
        self._run(*convert, checkpoint, file, "--type", kind, "--fault", fault)
        if kind.startswith("Q"):  # golden computes what the quantised weights stand for
            restored = self._work / f"{name}-checkpoint"
            shutil.copytree(checkpoint, restored, dirs_exist_ok=True)
            self._run(*convert, restored, file, "--restore")
            checkpoint = restored
        script = f"generate_llama_cpp{'_two' if '-two' in options else ''}.py"
        program = [self._python, HERE / script, file, *options]
        alone = self._run(*program)
        ait = [sys.executable, "-m", "ait_llm", "llm"]
        words = " ".join(map(str, program))
        seen = self._run(*ait, "dump", "--type", "gguf", "-er", "all", "-o", mine, "--exec", words)
        self._run(*ait, "golden", "--model", checkpoint, "--like", mine, "-o", golden)
        done = subprocess.run(
            [*map(str, ait), "compare", "-gp", golden, "-mp", mine, "-o", self._work / "reports",
             "--json"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {**found, "same": alone == seen}

    def _checkpoint(self, family: str) -> Path:
        folder = self._work / family
        if not folder.is_dir():
            import torch
            import transformers

            torch.manual_seed(1)
            sizes = {
                "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
                "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "initializer_range": 0.15,
                "tie_word_embeddings": False,
            }  # fmt: skip
            name, more = FAMILIES[family]
            config = getattr(transformers, f"{name}Config")(**sizes | more, head_dim=16)
            model = getattr(transformers, f"{name}ForCausalLM")(config)
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    torch.nn.init.normal_(parameter, std=0.3)
                if name.endswith(("q_norm.weight", "k_norm.weight")):
                    torch.nn.init.normal_(parameter, 1.0, 0.2)
            model.save_pretrained(folder)
        return folder

    def _run(self, *words: object) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*map(str, words)], check=False, capture_output=True, text=True, env=environment
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
        return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--work", type=Path)
    parser.add_argument("cases", nargs="*")
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    runs = Runs(given.venv / "bin" / "python", work)
    wanted = given.cases or [*HEALTHY, *FAULTS]
    say = print
    say("| run | verdict | exit code | compared | answers | first origin | right |")
    say("| --- | --- | --- | --- | --- | --- | --- |")
    for name in wanted:
        if name in HEALTHY:
            family, kind, options = HEALTHY[name]
            found, right = runs.compare(family, kind, options), ()
        else:
            family, fault, right, *more = FAULTS[name]
            found = runs.compare(family, "F32", more[0] if more else (), fault)
        origins = found.get("origins") or []
        first = origins[0]["op"] if origins else ""
        others = [each for one in origins[:1] for each in one.get("candidates", ())]
        judged = (
            ""
            if not right
            else "yes"
            if first in right
            else "among"
            if set(right) & set(others)
            else "no"
        )
        counts = found["counts"]
        compared = counts["PASS"] + counts["FAIL"]
        same = "same" if found["same"] else "OTHER"
        named = first and f"`{first}`"
        cells = (name, found["verdict"], found["exit_code"], compared, same, named, judged)
        say(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
