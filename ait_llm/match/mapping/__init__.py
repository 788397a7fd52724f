"""The user's mapping: lines of patterns that say which tensors of golden answer which of mine.

    model.layers.{i}.self_attn.{q,k,v}_proj -> transformer.h.{i}.attn.qkv[columns]

``text`` reads such a file, ``names`` knows what a run calls its tensors, ``relations`` the words
in brackets, ``resolve`` finds the pairs of two runs, and ``write`` makes the file of pairs that
were found.
"""
