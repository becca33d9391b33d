"""Reads the documents: their text, sections, tables, and the code blocks between fences."""

import re
from functools import cache
from typing import NamedTuple

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


def anchor_of(heading: str) -> str:
    """What a heading is linked by: lower case, hyphens for spaces, no punctuation."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("|- ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class RestCall(NamedTuple):
    """One call of the table of docs/rest.md. anchor: of the section that its row links to."""

    method: str
    path: str
    anchor: str


def rest_calls() -> list[RestCall]:
    """The calls of the table, in its order: with whole paths, and with each policy in place of POLICY."""
    calls: list[RestCall] = []
    table = rows(section("docs/rest.md", "All calls"))
    words = {row[0].strip("`"): row[1].strip("`") for row in table if len(row) == 2 and row[1].startswith("`/")}
    policies = {row[0].strip("`"): row[2] for row in table if len(row) == 3 and row[0].startswith("`")}
    for methods, path, _, link in (row for row in table if len(row) == 4 and row[1].startswith("`")):
        word, slash, rest = path.strip("`").partition("/")
        whole = words.get(word, word) + slash + rest
        names = policies if whole.endswith("/POLICY") else {"": link}
        for name, told in names.items():
            anchor = re.search(r"\(#(.*)\)$", told)
            assert anchor, f"{path} has no link to its section"
            calls += [RestCall(method, whole.replace("POLICY", name), anchor[1]) for method in methods.split()]
    return calls
