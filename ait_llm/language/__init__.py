"""Messages in English or Chinese.

The sources are written in English, and English text is what the library returns and raises. What
a command shows to a person passes through :func:`translate` on its way out: a catalogue holds each
text with its placeholders, so that ``a.bin: it is empty`` finds ``{path}: it is empty``. Results
for machines (JSON, tables) are not translated; the HTML page, which is for people, is.
"""

from ait_llm.language.catalogue import Catalogue, translate, translated_label
from ait_llm.language.choice import LANGUAGES, chosen, current, speaking

__all__ = [
    "LANGUAGES",
    "Catalogue",
    "chosen",
    "current",
    "speaking",
    "translate",
    "translated_label",
]
