"""Records what llama.cpp hands to its callback, for tests: ``record_llama_cpp.py GGUF OUTPUT.npz``.

Needs llama-cpp-python and this package; see tests/data/gguf/ORIGIN.md.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import sys
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import Llama
from llama_cpp import llama_cpp as low

from ait_llm.dump.ggml.library import library_of

PROMPT = [5, 17, 3, 20, 22]


class Recorder:
    """Keeps tensors of one evaluation after the other, equal bytes once."""

    def __init__(self) -> None:
        self.library = library_of(llama_cpp)
        self.evaluations: list[dict[str, Any]] = []
        self.data: dict[bytes, int] = {}

    def begin(self) -> None:
        self.evaluations.append({"tensors": {}, "order": []})

    def __call__(self, address: int, ask: bool, _data: Any) -> bool:
        if not ask:
            for source in filter(None, self.library.tensor(address).sources):
                if source not in self.evaluations[-1]["tensors"]:
                    self._keep(source)
            self._keep(address)
            self.evaluations[-1]["order"].append(address)
        return True

    def _keep(self, address: int) -> None:
        tensor = self.library.tensor(address)
        count = self.library.size(tensor)
        data = ctypes.create_string_buffer(count)
        self.library._library.ggml_backend_tensor_get(address, data, 0, count)
        number = self.data.setdefault(data.raw, len(self.data))
        fields = dataclasses.asdict(tensor) | {"data": number}
        self.evaluations[-1]["tensors"][address] = fields

    def renumbered(self) -> list[dict[str, Any]]:
        """The evaluations, with small numbers for addresses."""
        for evaluation in self.evaluations:
            numbers = {address: at + 1 for at, address in enumerate(evaluation["tensors"])}
            for fields in evaluation["tensors"].values():
                fields["address"] = numbers[fields["address"]]
                fields["root"] = numbers.get(fields["root"], 0)
                fields["sources"] = [numbers.get(each, 0) for each in fields["sources"] if each]
            evaluation["order"] = [numbers[address] for address in evaluation["order"]]
            evaluation["tensors"] = list(evaluation["tensors"].values())
        return self.evaluations


def main(model: str, output: str) -> None:
    recorder = Recorder()
    function = low.ggml_backend_sched_eval_callback(recorder)
    original = low.llama_init_from_model

    def init(loaded: Any, params: Any) -> Any:
        params.cb_eval = function
        return original(loaded, params)

    low.llama_init_from_model = init
    llama = Llama(model, n_ctx=256, verbose=False, logits_all=True, n_threads=1)
    tokens, chosen = PROMPT, []
    for _ in range(2):
        recorder.begin()
        llama.eval(tokens)
        tokens = [int(llama.scores[llama.n_tokens - 1].argmax())]
        chosen.append(tokens)
    meta = {
        "tokens": chosen,
        "llama_cpp_python": llama_cpp.__version__,
        "evaluations": recorder.renumbered(),
    }
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    data = {f"d{number}": np.frombuffer(raw, np.uint8) for raw, number in recorder.data.items()}
    np.savez_compressed(output, meta=text, **data)


if __name__ == "__main__":
    main(*sys.argv[1:])
