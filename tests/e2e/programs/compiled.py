"""Calls networks that are compiled in three ways and says how often each was compiled."""

import torch
from tiny_net import Net, inputs
from torch import nn
from torch._dynamo.testing import CompileCounter

if __name__ == "__main__":
    wrapped, in_place, regional = Net(0), Net(1), nn.Sequential(Net(2), Net(3))
    counters = [CompileCounter() for _ in range(3)]
    in_place.compile(backend=counters[1], fullgraph=True)
    regional[1].compile(backend=counters[2], fullgraph=True)
    models = (torch.compile(wrapped, backend=counters[0], fullgraph=True), in_place, regional)
    with torch.no_grad():
        outputs = [model(inputs()) for model in models for _ in range(3)]
    print(sum(outputs).sum().item(), *[counter.frame_count for counter in counters])
