"""The device's runtime, on the CPU: streams are numbers."""

from itertools import count
from types import SimpleNamespace

_streams = count(1)

rt = SimpleNamespace(
    set_device=lambda device: 0,
    create_stream=lambda: (next(_streams), 0),
)
