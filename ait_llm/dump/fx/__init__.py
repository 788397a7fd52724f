"""Capture of the graphs that torch.compile makes, operator by operator, in torchair's FX layout."""
