"""The server, on stdin and stdout."""

from __future__ import annotations

import inspect

from ait_llm import __version__
from ait_llm.core.optional import import_optional
from ait_llm.errors import MissingDependencyError
from ait_llm.mcp.limits import Limits
from ait_llm.mcp.tools import TOOLS, answering

_INSTRUCTIONS = (
    "Finds the operator whose numbers go wrong in large language model inference. Begin with "
    "doctor. Capture a trusted run (golden) and the run under suspicion (mine) with dump, then "
    "compare them; opcheck and errcheck need one dump only. Answers are JSON; 'shortened' says "
    "what was left out of a long one. Folders: {folders}."
)


def serve(limits: Limits) -> None:
    """Answer until stdin ends.

    Raises:
        MissingDependencyError: the package mcp is not installed, or too old.
    """
    try:
        mcpserver = import_optional("mcp.server.mcpserver", "ait llm mcp", "mcp")
        exceptions = import_optional("mcp.server.mcpserver.exceptions", "ait llm mcp", "mcp")
    except ModuleNotFoundError as error:  # version 1 has no such module
        raise MissingDependencyError(
            "ait llm mcp needs version 2 or newer of the Python package 'mcp'; run: "
            "pip install -U 'ait-llm[mcp]'"
        ) from error
    folders = ", ".join(map(str, limits.folders))
    server = mcpserver.MCPServer(
        "ait-llm",
        instructions=_INSTRUCTIONS.format(folders=folders),
        version=__version__,
        log_level="WARNING",
    )
    for tool in TOOLS:
        call = answering(tool, limits, exceptions.ToolError)
        parameters = list(inspect.signature(tool).parameters.values())[1:]
        annotations = {
            name: kind for name, kind in tool.__annotations__.items() if name != "limits"
        }
        call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]  # what the SDK makes the schema of
        call.__annotations__ = {**annotations, "return": "str"}
        server.add_tool(call, name=tool.__name__, structured_output=False)
    server.run("stdio")
