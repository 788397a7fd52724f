"""Pairs that need no alignment, for both sides say what each of their operations is.

All anchors are :class:`~ait_llm.match.programs.anchors.ports.Ports`: operations of two ATB runs
(``library``), modules and nodes of one name (``namesakes`` and ``common_nodes``, by way of
``arguments``), and tensors of the graph that an engine compiled (``engine``). What they pair is
settled by names, places and definitions, which no fault moves.
"""
