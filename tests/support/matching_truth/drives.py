"""How the models are called: prompts, padding, caches, images and sound."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from matching_truth.families import WORDS

PROMPT = (11, 47, 5, 88, 29, 63, 17)
OTHERS = ((90, 8, 31), (54, 22, 71, 3, 66), (13, 37, 80, 25, 9, 41))
FORCED = ((33, 60, 19, 74), (58, 14, 82, 45))


def once(model: nn.Module) -> None:
    """One pass over one prompt."""
    model(input_ids=torch.tensor([PROMPT]), use_cache=False)


def encoder(model: nn.Module) -> None:
    """One pass of a model that keeps no cache."""
    model(input_ids=torch.tensor([PROMPT]))


def both_coders(model: nn.Module) -> None:
    """One pass of an encoder over a prompt and of its decoder over another."""
    model(input_ids=torch.tensor([PROMPT]), decoder_input_ids=torch.tensor([OTHERS[1]]))


def _uniform(model: nn.Module, *shape: int) -> torch.Tensor:
    """Numbers that every type holds alike, in the type that the model computes in."""
    drawn = torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(3))
    return drawn.to(next(model.parameters()).dtype) / 256


def sound(model: nn.Module) -> None:
    """One pass over a piece of sound and the text so far."""
    model(input_features=_uniform(model, 1, 16, 24), decoder_input_ids=torch.tensor([OTHERS[1]]))


def image(model: nn.Module) -> None:
    """One pass over a prompt with an image of four patches."""
    ids = [*PROMPT[:3], *[WORDS - 1] * 4, *PROMPT[3:]]
    model(input_ids=torch.tensor([ids]), pixel_values=_uniform(model, 1, 3, 8, 8), use_cache=False)


DRIVES = {"bert": encoder, "t5": both_coders, "whisper": sound, "llava": image, "mamba": once}


class Generation:
    """Greedy decoding with tokens that are given, so that all variants get the same ones.

    Args:
        batch: the first prompt alone, or with others of other lengths.
        padding: ``left`` or ``right``; where prompts are shorter than the longest.
        cache: keep one, and pass only new tokens; else everything again in each step.
        steps: passes.
    """

    def __init__(
        self, batch: int = 1, padding: str = "left", *, cache: bool = True, steps: int = 3
    ) -> None:
        self.prompts = [OTHERS[0], OTHERS[1], PROMPT, OTHERS[2]] if batch > 1 else [PROMPT]
        self.padding, self.cache, self.steps = padding, cache, steps
        if batch > 1:  # the row of the single prompt is not the longest
            self.prompts[0] = (*OTHERS[0], *OTHERS[1], 77)

    def __call__(self, model: nn.Module) -> None:
        ids, mask = self._padded(self.prompts)
        place = mask.cumsum(1) - 1
        cache, new, positions = None, ids, place.clamp(min=0)
        for step in range(self.steps):
            kwargs = {"past_key_values": cache} if self.cache and cache is not None else {}
            result = model(
                input_ids=new,
                attention_mask=mask,
                position_ids=positions,
                use_cache=self.cache,
                **kwargs,
            )
            if step == self.steps - 1:
                break
            cache = result.past_key_values if self.cache else None
            token = torch.tensor([[row[step]] for row in self._forced()])
            mask = torch.cat([mask, torch.ones_like(token)], dim=1)
            last = mask.sum(1, keepdim=True) - 1
            ids = torch.cat([ids, token], dim=1)
            place = torch.cat([place, last], dim=1)
            new = token if self.cache else ids
            positions = last if self.cache else place.clamp(min=0)

    def _forced(self) -> list[Sequence[int]]:
        others = FORCED[1]
        return [FORCED[0] if prompt == PROMPT else others for prompt in self.prompts]

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, prompts))
        ids, mask = [], []
        for prompt in prompts:
            pads, ones = [0] * (longest - len(prompt)), [1] * len(prompt)
            left = self.padding == "left"
            ids.append([*pads, *prompt] if left else [*prompt, *pads])
            mask.append([*pads, *ones] if left else [*ones, *pads])
        return torch.tensor(ids), torch.tensor(mask)
