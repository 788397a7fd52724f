"""A program of ONNX Runtime with a cache: ``onnx_cache_program.py MODEL LEVEL [FAULT]``.

Reads a prompt (or two, of which one is padded) and another token, and prints those it chooses.
"""

import sys

import numpy as np
import onnxruntime

settings = onnxruntime.SessionOptions()
settings.log_severity_level = 3
settings.graph_optimization_level = getattr(
    onnxruntime.GraphOptimizationLevel, f"ORT_{sys.argv[2]}"
)
session = onnxruntime.InferenceSession(sys.argv[1], settings, providers=["CPUExecutionProvider"])
fault = sys.argv[3] if len(sys.argv) > 3 else ""
names = [each.name for each in session.get_inputs() if each.name.startswith("past")]
ids = np.array([[7, 10, 23, 42, 12, 3, 17]])
mask = np.ones_like(ids)
if fault == "padded":  # no fault
    ids = np.concatenate([ids, [[0, 0, 0, 9, 30, 5, 21]]])
    mask = (ids > 0).astype(np.int64)
past = {name: np.zeros((len(ids), 2, 0, 8), np.float32) for name in names}
for step in range(2):
    positions = ((mask.cumsum(-1) - 1) * mask)[:, -ids.shape[1] :]
    if step and fault == "positions":
        positions = positions * 0
    if step and fault == "layers":
        past = {name: past[name.translate(str.maketrans("01", "10"))] for name in names}
    given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **past}
    logits, *made = session.run(None, given)
    past = dict(zip(names, made, strict=True))
    ids = logits[:, -1:].argmax(-1)
    mask = np.concatenate([mask, np.ones_like(ids)], -1)
    print(ids.tolist())
