"""What ``generate`` of ``transformers`` chooses from: noted, and replaced where a run follows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ait_llm.dump.pytorch.assisted import is_proposing
from ait_llm.dump.pytorch.beams import BeamNotes, ForcedBeams
from ait_llm.dump.pytorch.choosing import settings_of
from ait_llm.dump.pytorch.following import Follower, ForcedTokens
from ait_llm.dump.pytorch.notes import Notes

UTILS = "transformers.generation.utils"
_PREPARE = "_get_logits_processor"


def watch_generate(
    notes: Notes, step_of: Callable[[nn.Module], int], follower: Follower | None = None
) -> bool:
    """Add our logits processors to every ``generate`` from now on.

    Args:
        notes: where beams are noted.
        step_of: the step that the capture of a model is at, -1 without one.
        follower: what to follow; None if the run takes its own tokens.

    Returns:
        False if transformers is not there yet; harmless when done before.
    """
    mixin = _mixin()
    if mixin is None:
        return False
    prepare = getattr(mixin, _PREPARE, None)
    if prepare is None:
        if follower is not None:
            follower.refuse("this version of transformers prepares its logits in an unknown way")
        return True
    if getattr(prepare, "notes", None) is notes:
        return True

    def prepared(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        processors = prepared.original(model, *args, **kwargs)  # type: ignore[attr-defined]
        if is_proposing():
            return processors
        config = kwargs.get("generation_config", args[0] if args else None)
        notes.tell("generation", {"settings": settings_of(config, processors)})
        processors += _processors(config, notes, lambda: step_of(model), follower)
        return processors

    prepared.notes = notes  # type: ignore[attr-defined]
    prepared.original = prepare  # type: ignore[attr-defined]
    setattr(mixin, _PREPARE, prepared)
    return True


def stop_watching(notes: Notes) -> None:
    """Leave transformers as it was; harmless when done before."""
    notes.end()
    mixin = _mixin()
    around: Any = None
    prepared: Any = getattr(mixin, _PREPARE, None)
    while getattr(prepared, "notes", notes) is not notes:
        around, prepared = prepared, prepared.original
    if mixin is None or getattr(prepared, "notes", None) is not notes:
        return
    if around is None:
        setattr(mixin, _PREPARE, prepared.original)
    else:
        around.original = prepared.original


def _processors(
    config: Any, notes: Notes, step: Callable[[], int], follower: Follower | None
) -> list[Any]:
    if (getattr(config, "num_beam_groups", None) or 1) > 1:  # of transformers before 5
        if follower is not None:
            follower.asked = True
            follower.refuse("groups of beams cannot follow; run both without num_beam_groups")
        return []
    width = getattr(config, "num_beams", None) or 1
    sampled = bool(getattr(config, "do_sample", False))
    found: list[Any] = [BeamNotes(notes, step, width)] if width > 1 else []
    if follower is None:
        return found
    follower.asked = True
    if width == 1:
        return [ForcedTokens(follower, step, sampled=sampled)]
    ends = _ends(config)
    found.append(ForcedBeams(follower.beams_for, follower.note, step, width, ends, sampled=sampled))
    return found


def _ends(config: Any) -> Sequence[int]:
    """Ids of tokens that end a text."""
    ids = getattr(config, "eos_token_id", None)
    if ids is None:
        return []
    return list(ids) if isinstance(ids, (list, tuple)) else [int(ids)]


def _mixin() -> type | None:
    return getattr(sys.modules.get(UTILS), "GenerationMixin", None)
