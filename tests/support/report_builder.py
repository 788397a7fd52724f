"""Reports made by hand for tests of what writes them."""

from __future__ import annotations

import base64
import math
from dataclasses import replace

from ait_llm.core import DType
from ait_llm.core.closeup import Closeup
from ait_llm.core.comparison import (
    HISTOGRAM_BINS,
    Comparison,
    Origin,
    Problem,
    Report,
    Side,
    SideSummary,
    TensorRecord,
    Verdict,
)

METRICS = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
)
LIMIT = 0.01

# Operations of a decoder layer: place below the layer, type, module of the PyTorch twin.
_BLOCK = (
    ("0_0_0", "RmsNormOperation", "input_layernorm"),
    ("0_0_1", "LinearOperation", "self_attn.q_proj"),
    ("0_1_0", "RopeOperation", ""),
    ("0_2", "SelfAttentionOperation", "self_attn.attention"),
    ("0_3", "LinearOperation", "self_attn.o_proj"),
    ("1", "ElewiseOperation", ""),
    ("2_0_0", "RmsNormOperation", "post_attention_layernorm"),
    ("2_1", "ActivationOperation", "mlp.act_fn"),
    ("2_2", "LinearOperation", "mlp.down_proj"),
)


def record(op: str = "LinearOperation_0", **changes: object) -> TensorRecord:
    """An output of one operation."""
    base = TensorRecord(
        op=op,
        op_id="0",
        op_type="LinearOperation",
        name="outtensor0",
        role="out",
        index=0,
        path=f"/dump/{op}/after/outtensor0.bin",
        dtype=DType.FLOAT16,
        shape=(11, 64),
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # names are those of the record


def comparison(error: float = 0.0, **changes: object) -> Comparison:
    """A pair whose headline error is ``error``; it fails beyond :data:`LIMIT`."""
    failed = error > LIMIT
    base = Comparison(
        golden=record("root.model.layers.0.q_proj", path="/golden/q_proj/output.pth", op_id="1"),
        mine=record(),
        verdict=Verdict.FAIL if failed else Verdict.PASS,
        rule="programs",
        confidence=0.95,
        why="same place in the layer, same shape",
        golden_view="as [11, 64]",
        golden_summary=SideSummary(2.5, -2.25, 0.125, 9.5),
        my_summary=SideSummary(2.5 + error, -2.25, 0.125, 9.5),
        values={
            "cosine_similarity": 1 - error**2,
            "max_relative_error": 8 * error,
            "mean_relative_error": error / 2,
            "max_absolute_error": 4 * error,
            "mean_absolute_error": error / 4,
            "relative_euclidean_distance": error,
        },
        missing={"kl_divergence": "not a distribution"},
        reason=f"relative Euclidean distance {error:.3g} exceeds {LIMIT}" if failed else "",
        tolerance={"relative_euclidean_distance": LIMIT, "max_element_error": 10 * LIMIT},
        needed={"relative_euclidean_distance": error, "max_element_error": error / 8},
        worst=(3, 17),
        worst_values=(1.25, 1.25 + 4 * error),
        histogram=_histogram(error) if failed else None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # names are those of the comparison


def report(*comparisons: Comparison, **changes: object) -> Report:
    """A report of these comparisons."""
    base = Report(
        golden=Side("/golden/out/ait_dump", "torch", ("0_7",), (0,)),
        mine=Side("/mine/out/ait_dump", "atb", ("0_42",), (0,)),
        scenario="atb-torch",
        comparisons=comparisons,
        metrics=METRICS,
        options={"tolerance": "default"},
        started="2024-03-26T10:00:00+00:00",
        finished="2024-03-26T10:00:03+00:00",
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # names are those of the report


def closeup(index: int, **changes: object) -> Closeup:
    """A tensor of 11 tokens and 64 channels; the first 8 channels of token 3 differ."""
    codes = bytearray(11 * 48)
    codes[3 * 48 : 3 * 48 + 6] = b"\xc8" * 6
    window = (math.nan, 0.5, 1.25, -0.5, 0.125)
    base = Closeup(
        index=index,
        shape=(11, 64),
        cells=(11, 48),
        errors=base64.b64encode(bytes(codes)).decode("ascii"),
        low=-2.25,
        high=2.5,
        golden_counts=(4, 300, 396, 4),
        my_counts=(4, 296, 396, 8),
        worst=(3 * 64 + 1, 3 * 64 + 7),
        golden_windows=window * 6,
        my_windows=(math.nan, 0.5, 2.49, -0.5, 0.125) * 6,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # names are those of the closeup


def decoder_report(
    *, layers: int = 2, steps: int = 1, fault: tuple[int, int] | None = (1, 3)
) -> Report:
    """A comparison of a decoder with its twin.

    Args:
        layers: decoder layers.
        steps: forward passes.
        fault: layer and place in the layer of the operation that goes wrong at step 0; its error is
            inherited by all that follows.
    """
    items: list[Comparison] = []
    origins: list[Origin] = []
    order = 0
    for step in range(steps):
        error = 2e-4
        for layer in range(layers):
            for place, (ids, op_type, module) in enumerate(_BLOCK):
                op_id = f"{layer + 2}_{ids}"
                faulty = fault == (layer, place) and step == 0
                before = error
                error = 0.31 if faulty else error * 1.01
                mine = record(
                    f"{op_type}_{op_id}",
                    op_id=op_id,
                    op_type=op_type,
                    step=step,
                    order=order,
                    device=0,
                    pid=42,
                    path=f"/mine/{step}/{op_id}/after/outtensor0.bin",
                )
                golden = record(
                    f"root.model.layers.{layer}.{module}",
                    op_id="",
                    op_type="Module",
                    name="output",
                    step=step,
                    path=f"/golden/{step}/{layer}.{module}/output.pth",
                )
                for role, value in (("in", before), ("out", error)):
                    name = f"{role}tensor0"
                    pair = comparison(
                        value,
                        mine=replace(
                            mine,
                            role=role,  # type: ignore[arg-type]  # one of the two words
                            name=name,
                            path=mine.path.replace("outtensor0", name),
                        ),
                        golden=golden,
                        inherited=before if role == "out" else None,
                        introduced=error if faulty else 1e-4 if role == "out" else None,
                    )
                    if not module:
                        pair = comparison(
                            golden=None,
                            mine=pair.mine,
                            verdict=Verdict.SKIPPED,
                            reason="no module of the golden side answers this operation",
                            rule="",
                            values={},
                            missing={},
                            tolerance={},
                            needed={},
                            worst=None,
                            worst_values=None,
                            golden_summary=None,
                            my_summary=None,
                            golden_view="",
                            histogram=None,
                        )
                    if faulty and role == "out":
                        origins.append(
                            Origin(
                                mine.op,
                                op_id,
                                op_type,
                                step,
                                0,
                                42,
                                golden_op=golden.op,
                                index=len(items),
                                evidence=f"its inputs pass with {before:.3g} and its output fails "
                                f"with {error:.3g}",
                                inherited=before,
                                introduced=error,
                                kind="constant scale",
                                kind_evidence="every element is 1.31 times too large",
                            )
                        )
                    items.append(pair)
                order += 1
    return report(
        *items,
        origins=tuple(origins),
        closeups=tuple(closeup(item.index) for item in origins if item.index is not None),
        golden=Side("/golden/out/ait_dump", "torch", ("0_7",), tuple(range(steps))),
        mine=Side("/mine/out/ait_dump", "atb", ("0_42",), tuple(range(steps))),
    )


def unreadable() -> Comparison:
    """A pair whose file is cut off."""
    return comparison(
        verdict=Verdict.ERROR,
        reason="/dump/LinearOperation_0/after/outtensor0.bin: the file ends early",
        values={},
        missing={},
        tolerance={},
        needed={},
        worst=None,
        worst_values=None,
        golden_summary=None,
        my_summary=None,
    )


def not_finite() -> Comparison:
    """A pair where my side has a NaN and the golden one has none."""
    return comparison(
        0.5,
        reason="2 elements are not finite on one side only",
        values={"max_absolute_error": math.inf, "mean_absolute_error": math.nan},
        missing={"cosine_similarity": "my side holds 2 NaN"},
        needed={"relative_euclidean_distance": math.inf, "max_element_error": math.inf},
        my_summary=SideSummary(2.5, -2.25, 0.125, 9.5, nan=2),
        first_bad=(0, 5),
    )


def problems() -> tuple[Problem, ...]:
    """One that decides and one that does not."""
    return (
        Problem("mine", "process 42 on device 0: it did not finish its capture"),
        Problem("golden", "kernels are not compared", decides=False),
    )


def _histogram(error: float) -> tuple[int, ...]:
    """A bell around the decade of the error."""
    centre = min(13, max(1, round(math.log10(error)) + 12))
    return tuple(
        int(1000 * math.exp(-((place - centre) ** 2) / 4)) for place in range(HISTOGRAM_BINS)
    )
