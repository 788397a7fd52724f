"""``model_tree.json``: the module tree of a captured model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch import nn

from ait_llm.dump.folders import make_folder
from ait_llm.dump.pytorch.definition import Definitions
from ait_llm.dump.pytorch.few_bits import rounding
from ait_llm.dump.pytorch.hooks import class_name, is_wrapped


def module_tree(model: nn.Module, root: str = "root") -> dict[str, Any]:
    """The tree as nested ``{"name", "type", "definition", "children"}``, in definition order.

    A module with weights in few bits has ``rounding``, see :func:`few_bits.rounding`.

    A module that is registered at several places is listed at each; one that contains itself is
    not descended into again. Wrappers do not show, as in the paths of the capture.
    """
    definitions = Definitions()

    def describe(module: nn.Module, name: str, above: frozenset[int]) -> dict[str, Any]:
        inside = above | {id(module)}
        for key, child in module._modules.items():
            if child is not None and id(child) not in inside and is_wrapped(module, key):
                return describe(child, name, inside)
        described: dict[str, Any] = {
            "name": name,
            "type": class_name(module),
            "definition": definitions.of(module),  # before those of its children
        }
        error = rounding(module)
        if error:
            described["rounding"] = error
        children = [
            describe(child, f"{name}.{key}", inside)
            for key, child in module._modules.items()
            if child is not None and id(child) not in above
        ]
        return described | {"children": children}

    return describe(model, root, frozenset())


def write_module_tree(path: Path, model: nn.Module, root: str = "root") -> None:
    """Write the tree to ``path`` in one piece."""
    make_folder(path.parent)
    temporary = path.with_name(path.name + ".part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(module_tree(model, root), file)
        file.write("\n")
    temporary.replace(path)
