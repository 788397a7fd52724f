"""Demo models of the embedded library and their PyTorch twins."""
