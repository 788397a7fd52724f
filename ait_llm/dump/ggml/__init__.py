"""Capture of llama.cpp: every value of the graphs that ``llama-cpp-python`` evaluates."""
