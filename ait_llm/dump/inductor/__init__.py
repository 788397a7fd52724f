"""Capture of what Inductor's fused kernels store, and which operators they fused."""
