"""The two READMEs show the same commands; tests/packaging runs them on a bare machine."""

from __future__ import annotations

import re

from doc_pages import ROOT, blocks


def test_both_languages_show_the_same_commands_and_programs() -> None:
    english, chinese = (
        [
            (block.language, re.sub(r"#.*", "", block.text))
            for block in blocks((ROOT / name).read_text("utf-8"))
        ]
        for name in ("README.md", "README.zh-CN.md")
    )
    assert [language for language, _ in english] == ["bash", "text", "bash", *["python"] * 3]
    assert [list(map(str.rstrip, text.splitlines())) for _, text in english] == [
        list(map(str.rstrip, text.splitlines())) for _, text in chinese
    ]


def test_both_languages_name_the_operator_that_is_found() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md")]
    named = [set(re.findall(r"`(\w+Operation_\w+)`", text)) for text in texts]
    assert named[0] == named[1] != set()


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def numbers(pattern: str, text: str) -> tuple[int, ...]:
    """Of the only place that fits."""
    (found,) = re.findall(pattern, text)
    return tuple(map(int, [found] if isinstance(found, str) else found))


def test_the_figures_are_those_of_the_pages_that_measured_them() -> None:
    pairs, alarms = numbers(r"(\d+) pairs, (\d+) false alarms", page("healthy-results.md"))
    right, bugs = numbers(r"right first time: (\d+) of (\d+)", page("origins-results.md"))
    (innocent,) = numbers(r"named as certain: (\d+) of", page("origins-results.md"))
    accused, kernels = numbers(r"(\d+) of (\d+) legal kernels accused", page("legal-results.md"))
    found, faults = numbers(r"(\d+) of (\d+) faults found", page("legal-results.md"))
    shares = re.findall(r"([\d.]+) of the time that msprobe's", page("performance.md"))
    assert (alarms, accused) == (0, 0)
    certain = {0: ("in none", "没有一次"), 1: ("in one", "有一次")}[innocent]
    figures = (
        f"{pairs}", f"{right}", f"{bugs}", f"{kernels:,}".replace(",", " "),
        f"{100 * found / faults:.1f} %",
        f"{min(map(float, shares)):.2f}", f"{max(map(float, shares)):.2f}",
    )  # fmt: skip
    ends = certain[0] + " an innocent one", certain[1] + "把无辜的算子"
    for name, words in zip(("README.md", "README.zh-CN.md"), ends, strict=True):
        text = (ROOT / name).read_text("utf-8")
        assert [each for each in (*figures, words) if each not in text] == []
