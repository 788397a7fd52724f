"""Runs of one program under changes that must not change its answer; no golden run is needed.

``running`` makes the runs of a program and ``in_process`` calls of a module, ``judging`` says what
each of them shows, ``result`` holds it and ``summary`` tells it to a build. How a change is made is
in :mod:`ait_llm.dump.changes`, how two runs are compared in :mod:`ait_llm.compare`; nothing here
hooks or measures.
"""
