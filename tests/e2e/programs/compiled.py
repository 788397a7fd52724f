"""Calls a compiled network three times and says how often it was compiled."""

import torch
from tiny_net import Net, inputs
from torch._dynamo.testing import CompileCounter

if __name__ == "__main__":
    counter = CompileCounter()
    model = torch.compile(Net(), backend=counter, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            output = model(inputs())
    print(output.sum().item(), counter.frame_count)
