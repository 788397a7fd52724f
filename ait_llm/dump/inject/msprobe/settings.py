"""What a program gets in the place of the configuration that it names; free of torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ait_llm.dump.inject.settings import CHANNEL_VARIABLE, COMPILE_ANEW, SITE_FOLDER
from ait_llm.errors import UsageError

VARIABLE = "AIT_MSPROBE_CONFIG"


@dataclass(frozen=True, slots=True)
class MsprobeSettings:
    """A capture through the interface of msprobe.

    Attributes:
        config: the ``config.json`` that holds in every process of the program.
        dump_path: absolute folder to write to, whatever the file says.
    """

    config: Path
    dump_path: Path

    def to_json(self) -> str:
        """The text of :data:`VARIABLE`."""
        return json.dumps({"config": str(self.config), "dump_path": str(self.dump_path)})

    @classmethod
    def from_json(cls, text: str) -> MsprobeSettings:
        """Read what :meth:`to_json` wrote.

        Raises:
            UsageError: the text is damaged.
        """
        try:
            values = json.loads(text)
            return cls(Path(values["config"]), Path(values["dump_path"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{VARIABLE} is not readable ({error}); start through ait llm dump"
            ) from error


def msprobe_environment(
    settings: MsprobeSettings, environment: Mapping[str, str], channel: Path
) -> dict[str, str]:
    """The environment of a program in which ``msprobe.pytorch`` is ours.

    Args:
        settings: of the capture.
        environment: that the program would get; its PYTHONPATH is kept.
        channel: folder through which its processes report to the launcher.
    """
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        **COMPILE_ANEW,
        VARIABLE: settings.to_json(),
        CHANNEL_VARIABLE: str(channel),
        "PYTHONPATH": f"{SITE_FOLDER}:{path}" if path else str(SITE_FOLDER),
    }
