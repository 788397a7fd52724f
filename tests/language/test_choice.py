"""Which language the messages of a command are in."""

from __future__ import annotations

import pytest

from ait_llm.cli.localised import take_language
from ait_llm.errors import UsageError
from ait_llm.language import chosen, current, speaking, translate


@pytest.mark.parametrize(
    ("option", "environment", "language"),
    [
        (None, {}, "en"),
        (None, {"LANG": "C.UTF-8"}, "en"),
        (None, {"LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LANG": "zh_TW"}, "zh"),
        (None, {"LANG": "de_DE.UTF-8"}, "en"),
        (None, {"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        (None, {"LANG": "zh_CN.UTF-8", "LC_ALL": "C", "LC_MESSAGES": "zh_CN"}, "en"),
        (None, {"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LANG": "zh_CN.UTF-8", "AIT_LANG": "en"}, "en"),
        ("zh", {"LANG": "C", "AIT_LANG": "en"}, "zh"),
    ],
)
def test_the_option_counts_before_the_variable_before_the_locale(
    option: str | None, environment: dict[str, str], language: str
) -> None:
    assert chosen(option, environment) == language


@pytest.mark.parametrize(("option", "environment"), [("de", {}), (None, {"AIT_LANG": "de"})])
def test_a_language_that_there_is_not_is_refused(
    option: str | None, environment: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="'de' is no language of the messages; give en or zh"):
        chosen(option, environment)


def test_a_language_is_spoken_within_its_block_only() -> None:
    assert (current(), translate("Options")) == ("en", "Options")
    with speaking("zh"):
        assert (current(), translate("Options")) == ("zh", "选项")
    assert current() == "en"


@pytest.mark.parametrize(
    ("words", "rest", "language"),
    [
        (["llm", "--lang", "zh", "show"], ["llm", "show"], "zh"),
        (["llm", "show", "x", "--lang=zh"], ["llm", "show", "x"], "zh"),
        (["llm", "show"], ["llm", "show"], None),
        (["llm", "show", "--", "--lang", "zh"], ["llm", "show", "--", "--lang", "zh"], None),
        (["llm", "show", "--lang"], ["llm", "show", "--lang"], None),
    ],
)
def test_the_option_may_stand_anywhere_before_two_dashes(
    words: list[str], rest: list[str], language: str | None
) -> None:
    assert take_language(words) == (rest, language)
