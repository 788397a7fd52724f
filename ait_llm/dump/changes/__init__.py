"""Changes of a run that must not change its answer, made in the program while it runs.

``catalogue`` names them, free of torch. ``rows`` and ``padding`` change the arguments of a call and
put its results back; ``calls`` makes changed calls; ``process`` changes what a whole process has:
its threads, its memory, the attention and the compilation of its models; ``engine`` those of vLLM.
``start`` is what the injected capture calls. Nothing here records or judges.
"""

from __future__ import annotations

from ait_llm.dump.inject.channel import report


def made(change: str) -> None:
    """Say that a program has made a change itself; without ``ait llm invariant`` nothing happens.

    Args:
        change: name of the change, that of the environment variable ``AIT_INVARIANT_CHANGE``.
    """
    report("changed", change=change)
