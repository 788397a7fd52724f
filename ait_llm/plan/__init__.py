"""The use case *plan*: what a capture would write, before it is run, and what fits a budget."""
