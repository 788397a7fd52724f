"""Which difference matters: golden's values put in place of mine, and what that does to the answer.

Read first: :func:`ait_llm.transplanting.search.search`, from differences to those that matter;
:class:`ait_llm.transplanting.patched.PatchedProgram`, how they are found and healed;
:func:`ait_llm.transplanting.sets.smallest_set`. ``running`` starts programs and ``in_process``
calls modules; how a value is changed while a program runs is not decided here, but in
:mod:`ait_llm.dump.pytorch.patching`.
"""
