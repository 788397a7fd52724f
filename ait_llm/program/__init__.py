"""A forward pass as a graph of values: what ran together, and what flowed between operations."""
