"""What a capture of graphs records; free of torch."""

from __future__ import annotations

from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.inject.settings import TorchSettings


def fx_options(settings: TorchSettings) -> FxOptions:
    """The settings in the form that the capture itself takes."""
    return FxOptions(
        output=settings.output,
        weights=settings.weights,
        steps=settings.steps,
        targets=tuple(
            pattern
            for prefix in settings.type_prefixes
            for pattern in (f"{prefix}*", f"aten.{prefix}*", f"onnx.{prefix}*")
        ),
        inputs=settings.inputs,
        outputs=settings.outputs,
        run=settings.run,
        survey=settings.survey,
    )
