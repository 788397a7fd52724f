"""Exports a small Llama for the tests: ``record_onnx.py FOLDER``, with torch.onnx and onnxscript.

Writes ``llama.onnx``, the weights of the same model, ``llama.safetensors``, and the model with
weights of 4 bits, ``llama_4bits.onnx``, as ONNX Runtime's quantiser makes it. What the exporter
notes of lines of code is left out, for it names the machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import torch
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig

CONFIG = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


class Logits(torch.nn.Module):
    """What is exported: ids in, logits out, without a cache."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False).logits


def main(folder: Path) -> None:
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(LlamaConfig(**CONFIG), attn_implementation="eager")
    for parameter in made.parameters():
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter.data, 0.5, 1.5)
    ids = torch.tensor([[7, 10, 23, 42, 12, 3, 17]])
    path = folder / "llama.onnx"
    sizes = ({1: torch.export.Dim.DYNAMIC},)
    torch.onnx.export(
        Logits(made.eval()), (ids,), path, dynamo=True, dynamic_shapes=sizes, external_data=False
    )
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [each for each in node.metadata_props if each.key == "pkg.torch.onnx.name_scopes"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    del model.metadata_props[:]
    onnx.save(model, path)
    state = {name: each.contiguous() for name, each in made.state_dict().items()}
    save_file(state, folder / "llama.safetensors")
    quantiser = MatMulNBitsQuantizer(str(path), block_size=16, is_symmetric=False)
    quantiser.process()
    onnx.save(quantiser.model.model, folder / "llama_4bits.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
