"""Why a token is another one: what both runs thought of it, and which error changed the choice.

Read first: :class:`ait_llm.decisions.result.Decision`, what is known of one choice;
:func:`ait_llm.decisions.choices.decisions_of`, from logits to choices;
:class:`ait_llm.decisions.why.Reasons`, from errors of operators to the change of a margin.
Values are changed by :mod:`ait_llm.transplanting`, gradients computed in
:mod:`ait_llm.dump.pytorch.contributing`.
"""
