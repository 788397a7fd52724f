"""Python imports this module at start-up when its folder is first on PYTHONPATH.

It arranges that the capture starts once the program has imported torch, or that ours stands in the
place of ``msprobe.pytorch``. Then it hands over to the ``sitecustomize`` that the program would
have had without us. It must never break the program: it imports nothing heavy, and without the
capture's settings in the environment it does nothing.
"""

# pathlib would cost every interpreter of the program some milliseconds.
# ruff: noqa: PTH100, PTH120

import os
import sys


def _start() -> None:
    if not os.environ.get("AIT_TORCH_CAPTURE") and not os.environ.get("AIT_MSPROBE_CONFIG"):
        return
    try:
        if os.environ.get("AIT_MSPROBE_CONFIG"):
            from ait_msprobe import stand_in  # type: ignore[import-not-found]

            stand_in()
            return
        # Beside this file, whose folder is on the path now.
        from ait_torch_capture import (  # type: ignore[import-not-found]
            capture_when_its_library_is_imported,
        )

        capture_when_its_library_is_imported()
    except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
        sys.stderr.write(
            f"ait: nothing of this process is captured: {type(error).__name__}: {error}\n"
        )


def _hand_over() -> None:
    """Leave the program's path, and import the ``sitecustomize`` that comes next on it.

    Children of the program find our folder in the environment.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the program's own
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_start()
_hand_over()
