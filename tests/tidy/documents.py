"""Reads the documents: their text, sections, tables, and the code blocks between fences."""

import re
from functools import cache

from tests.tidy.source import ROOT


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def fenced(text: str, language: str = "") -> list[str]:
    """The code blocks between fences of one language; without one, the pictures."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for tag, block in blocks if tag == language]


def programs(name: str) -> dict[str, str]:
    """{file name: text} of the blocks of Python that are whole programs: their first line has the name."""
    found: dict[str, str] = {}
    for block in fenced(text_of(name), "python"):
        if named := re.match(r"# (\w+\.py)\n", block):
            assert named[1] not in found, f"{name} has two programs {named[1]}"
            found[named[1]] = block
    return found


def section(document: str, title: str) -> str:
    """What stands under one heading of a document, up to the next heading of that level."""
    parts = re.split(r"^## (?:\d+\. )?(.*)\n", text_of(document), flags=re.MULTILINE)
    return parts[parts.index(title) + 1]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("|- ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
