"""Capture of ONNX Runtime: every value of every session, written as graphs of nodes."""
