"""Which generation step a forward call of the model belongs to.

Step 0 is the prefill, step k the k-th call after it. A counter of forward calls is right only for
the simplest loop; this one also looks at how many positions a call covers and where they start:

- A call that starts at position 0 begins a generation, unless the program keeps no cache and the
  sequence is just one position longer than in the call before: that is the next step.
- While the prompt is not consumed, calls that start where the last one ended are chunks of one
  prefill and share its step. The length of the prompt is known when the program uses
  ``generate``; otherwise the first call that covers a single position ends the prefill.
- Every other call is the next step, however many positions it verifies (speculative decoding).

Later generations of the same process continue the count, so that no step is written twice; the
ledger names the generation. Warm-up generations can be left out, and a program whose loop looks
different can say itself where a step begins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Positions that one forward call of the model covers.

    Attributes:
        start: tokens already in the cache.
        length: tokens passed to this call, per sequence.
        cached: True if the program keeps a cache.
    """

    start: int
    length: int
    cached: bool

    @property
    def end(self) -> int:
        """Sequence length after the call."""
        return self.start + self.length


class StepCounter:
    """Assigns a step to each forward call of one model.

    Args:
        warmup: generations at the start of the process that do not count.
    """

    def __init__(self, warmup: int = 0) -> None:
        self._warmup = warmup
        self._step = -1
        self._generation = -1
        self._step_in_generation = 0
        self._last: Span | None = None
        self._prompt: int | None = None
        self._in_prefill = False
        self._manual = False
        self._new_generation = False
        self._in_preamble = False

    @property
    def step(self) -> int:
        """The current step over the whole process; -1 before the first, and during warm-up."""
        return self._step if self._generation >= self._warmup else -1

    @property
    def generation(self) -> int:
        """Number of the current generation that counts, from 0; negative during warm-up."""
        return self._generation - self._warmup

    @property
    def step_in_generation(self) -> int:
        """The current step counted from the prefill of its own generation."""
        return self._step_in_generation

    @property
    def expects_prefill(self) -> bool:
        """True if the next call of the model is known to be a prefill."""
        return self._new_generation or self._in_preamble

    def begin_generation(self, prompt_length: int | None = None) -> None:
        """Say that the next call is a prefill, of a prompt with that many tokens if known."""
        self._new_generation = True
        self._in_preamble = False
        self._prompt = prompt_length

    def begin_preamble(self) -> bool:
        """Account for a call of one of the model's modules outside a call of the model.

        An encoder that ``generate`` runs before the decoder belongs to the prefill that follows.

        Returns:
            True if the call is such a preamble; :attr:`step` is then that of the prefill.
        """
        if self._new_generation and not self._manual:
            self._start(None)
            self._in_preamble = True
        return self._in_preamble

    def mark(self) -> None:
        """Begin the next step by hand; from then on only marks change the step.

        The first mark after :meth:`begin_generation` begins a generation.
        """
        if self._generation < 0 or self._new_generation:
            self._start(None)
        else:
            self._next()
        self._manual = True
        self._in_preamble = False

    def at(self, step: int) -> None:
        """Take the step from an engine that counts its passes itself; all are one generation."""
        self._manual = True
        self._generation = max(self._generation, self._warmup)
        self._step = step

    def call(self, span: Span | None) -> int:
        """Account for one forward call and return :attr:`step`.

        Args:
            span: what the call covers; None if its arguments do not show it, as for a model
                that does not generate. Such a call is a step and a generation of its own.
        """
        if self._manual:
            return self.step
        if self._in_preamble:
            self._in_preamble = False
            self._in_prefill = self._expects_more(span)
        elif self._new_generation or span is None or self._last is None:
            self._start(span)
        elif self._continues_prefill(span):
            self._in_prefill = self._expects_more(span)
        elif span.start == 0 and not self._grew_without_cache(span):
            self._prompt = None
            self._start(span)
        else:
            self._next()
        self._last = span
        return self.step

    def _start(self, span: Span | None) -> None:
        self._new_generation = False
        self._generation += 1
        self._step_in_generation = 0
        self._in_prefill = self._expects_more(span)
        self._advance()

    def _next(self) -> None:
        self._in_prefill = False
        self._step_in_generation += 1
        self._advance()

    def _advance(self) -> None:
        if self._generation >= self._warmup:
            self._step += 1

    def _expects_more(self, span: Span | None) -> bool:
        """True if further chunks of the prompt may follow a prefill call."""
        return span is not None and (self._prompt is None or span.end < self._prompt)

    def _continues_prefill(self, span: Span) -> bool:
        if not self._in_prefill or self._last is None or span.start != self._last.end:
            return False
        return span.length > 1 if self._prompt is None else span.end <= self._prompt

    def _grew_without_cache(self, span: Span) -> bool:
        return (
            self._last is not None
            and not span.cached
            and self._last.start == 0
            and span.length == self._last.length + 1
        )
