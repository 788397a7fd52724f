"""URLs as text."""

from __future__ import annotations

import pytest

from ait_llm.errors import UsageError
from ait_llm.storage import is_url, local_path, output_folder, redacted
from ait_llm.storage.addresses import local_part, without_secrets


@pytest.mark.parametrize(
    "text",
    ["s3://bucket/out", "memory://a", "file:///tmp/a", "zip::s3://b/a.zip", "zip://in::file:///a"],
)
def test_urls_of_fsspec_are_known(text: str) -> None:
    assert is_url(text)


@pytest.mark.parametrize("text", ["out/ait_dump", "/a", "aten::add.npy", "C:/a", "a:b", "", "://a"])
def test_paths_are_no_urls(text: str) -> None:
    assert not is_url(text)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://me:secret@host/a", "ftp://me:***@host/a"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("https://h/a?X-Amz-Signature=0ff&x=1", "https://h/a?X-Amz-Signature=***&x=1"),
        ("https://h/a?versionId=7", "https://h/a?versionId=7"),
        ("zip::ftp://me:secret@host/a.zip", "zip::ftp://me:***@host/a.zip"),
    ],
)
def test_secrets_of_a_url_are_not_shown(url: str, said: str) -> None:
    assert redacted(url) == said


def test_messages_of_libraries_are_shown_without_the_secrets_of_the_url() -> None:
    url = "ftp://me:secret@host/a"
    said = without_secrets(f"cannot open {url}: login of me with secret failed", url)
    assert "secret" not in said
    assert said.startswith("cannot open ftp://me:***@host/a")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///tmp/a b%20c", "/tmp/a b%20c"),
        ("local:///tmp/a", "/tmp/a"),
        ("file://localhost/tmp/a", "/tmp/a"),
        ("s3://tmp/a", None),
        ("zip://x::file:///tmp/a.zip", None),
    ],
)
def test_file_urls_hold_a_path_as_fsspec_reads_it(url: str, path: str | None) -> None:
    assert local_part(url) == path


@pytest.mark.parametrize("url", ['s3://b/a"b', "s3://b/a\\b", "s3://b/a\nb", "memory://\x1b[2J"])
def test_characters_that_would_break_a_report_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="are not read"):
        local_path(url)
    with pytest.raises(UsageError, match="are not read"):
        output_folder(url)
