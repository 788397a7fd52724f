"""Where independent units of work are computed: in threads, or on the nodes of a Ray cluster."""

from ait_llm.engine.choose import ENGINES, open_engine
from ait_llm.engine.local import LocalEngine
from ait_llm.engine.model import Engine, Lost, attempt

__all__ = ["ENGINES", "Engine", "LocalEngine", "Lost", "attempt", "open_engine"]
