"""Values from inside graphs of ``torch.compile``: an operator behind each module reports them."""
