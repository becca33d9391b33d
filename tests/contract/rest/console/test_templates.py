"""Every template and file of the console: what the content security policy would block is not there at all."""

import re
from pathlib import Path

import pytest

from oncelog.metadata import console

FOLDER = Path(console.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
FORBIDDEN = (
    (r"<style", "a style sheet"),
    (r"\sstyle\s*=", "an inline style"),
    (r"<script(?![^>]*\ssrc=)", "an inline script"),
    (r"\son[a-z]+\s*=", "a handler"),
    (r"javascript:", "a script in a link"),
    (r"\|\s*safe\b", "a value that is not escaped"),
    (r"autoescape", "a change of escaping"),
    (r"https?://", "something from elsewhere"),
    (r"=\s*\{\{", "an attribute without quotes"),
)


def breaches(text: str) -> list[str]:
    return [what for pattern, what in FORBIDDEN if re.search(pattern, text, re.IGNORECASE)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_template_has_nothing_inline_and_escapes_everything(path: Path) -> None:
    """Only comments of the template language may name it."""
    assert breaches(re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.DOTALL)) == []


@pytest.mark.parametrize(
    "text",
    [
        '<p style="color:red">', "<svg><rect STYLE='fill:red'>", "<script>f()</script>", "<a onclick='f()'>",
        '<a href="javascript:f()">', "{{ name | safe }}", "{% autoescape false %}", "<p title={{ name }}>",
        '<img src="https://elsewhere.example/a.png">', "<style>p{}</style>",
    ],
)  # fmt: skip
def test_breach_is_found(text: str) -> None:
    assert breaches(text)


def test_script_and_style_sheet_load_nothing() -> None:
    """And no text becomes code."""
    script = (FOLDER / "static" / "console.js").read_text()
    assert re.search(r"\b(eval|Function|document\.write|import)\b\s*\(", script) is None
    style = (FOLDER / "static" / "console.css").read_text()
    assert re.search(r"url\(|@import|https?:", script + style) is None
