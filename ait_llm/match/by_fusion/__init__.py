"""Matches what a graph engine ran with the graph that it fused: FX nodes, or an unfused run.

Every dumped tensor is a tensor of the graph before fusion. Two tensors belong together if they are
the same one there, whichever operator computed it and at whichever place it was passed.
"""
