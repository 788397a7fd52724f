"""A program of ONNX Runtime: ``onnx_program.py MODEL [LEVEL [WAY]]`` prints what it computes."""

import queue
import sys

import numpy as np
import onnxruntime

PROMPTS = ([7, 10, 23, 42, 12, 3, 17], [1, 2, 3, 4, 5, 6, 7, 8])

settings = onnxruntime.SessionOptions()
settings.log_severity_level = 3
level = sys.argv[2] if len(sys.argv) > 2 else "ENABLE_ALL"
settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
session = onnxruntime.InferenceSession(sys.argv[1], settings, providers=["CPUExecutionProvider"])
(output,) = [each.name for each in session.get_outputs()]
for prompt in PROMPTS:
    ids = np.array([prompt])
    if sys.argv[3:] == ["bound"]:
        binding = session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_output(output)
        session.run_with_iobinding(binding)
        (logits,) = binding.copy_outputs_to_cpu()
    elif sys.argv[3:] == ["async"]:
        made: queue.Queue = queue.Queue()
        session.run_async(
            None, {"input_ids": ids}, lambda found, into, error: into.put(found), made
        )
        (logits,) = made.get(timeout=60)
    else:
        (logits,) = session.run(None, {"input_ids": ids})
    print(logits.astype(np.float64).sum().hex())
