"""The PyTorch twin of the Llama demo with one module whose output is one per cent too large.

``python faulty_llama_twin.py MODULE [OPTION...]``; the options are those of the twin.
"""

import sys

from ait_llm.hostatb.demo import llama_torch

MODULE = sys.argv.pop(1)
make = llama_torch.llama_twin


def faulty(*args, **kwargs):
    twin = make(*args, **kwargs)
    twin.get_submodule(MODULE).register_forward_hook(lambda _module, _inputs, out: out * 1.01)
    return twin


llama_torch.llama_twin = faulty
llama_torch.main()
