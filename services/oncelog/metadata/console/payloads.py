"""How stored bytes are shown: as text, as JSON with indentation, or in hexadecimal. What is shown is what is stored: no
number or key is read and written again."""

import base64
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, NamedTuple

FORMS = ("text", "json", "hex")
#: Deeper values are not indented further: a hostile one would make megabytes of blanks.
_DEPTH_MAX = 20
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_LINE_BYTES = 16


#: A larger value is shown as indented text.
_NODES_MAX = 2_000


class JsonNode(NamedTuple):
    """A part of a JSON value, in the tokens of what is stored. name: of the field, or number of the element; empty: the
    whole value. text: of what has no parts. children: of an object, or, if is_list, of a list. depth: 0 for the whole
    value."""

    name: str
    text: str
    children: "list[JsonNode]"
    is_list: bool
    depth: int


class ShownBytes(NamedTuple):
    """note: why it is not in the form that was asked for; empty: it is. tree: of a JSON value that has parts."""

    text: str
    note: str = ""
    tree: JsonNode | None = None


def shown_bytes(row: dict[str, Any], name: str, form: str, *, alone: bool = True) -> ShownBytes | None:
    """The field `name` of a message of REST, which has it as text, or in base64; None: it has neither. alone: it has
    the page for itself, so JSON gets lines of its own."""
    text, encoded = row[name], row[f"{name}_base64"]
    if text is None and encoded is None:
        return None
    if text is None:
        data = base64.b64decode(encoded)
        return ShownBytes(hexadecimal(data), "" if form == "hex" else _no_text(data, cut=row.get("truncated", False)))
    if form == "hex":
        return ShownBytes(hexadecimal(text.encode()))
    if form == "json":
        indented = indented_json(text)
        if indented is None:
            return ShownBytes(text, "no JSON")
        return ShownBytes(indented, tree=json_tree(text)) if alone else ShownBytes(text)
    return ShownBytes(text)


def _no_text(data: bytes, *, cut: bool) -> str:
    """Why REST gives it in base64. cut: it may end inside a character."""
    try:
        getincrementaldecoder("utf-8")().decode(data, final=not cut)
    except UnicodeDecodeError:
        return "no text in UTF-8"
    return "text with control characters"


def hexadecimal(data: bytes) -> str:
    """Lines of 16 bytes: place, bytes, and their ASCII characters."""
    lines = []
    for at in range(0, len(data), _LINE_BYTES):
        part = data[at : at + _LINE_BYTES]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{3 * _LINE_BYTES}} {characters}")
    return "\n".join(lines)


def indented_json(text: str) -> str | None:
    """The same tokens with line breaks and indentation; None: the text is no JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "".join(_indented(_WORD.findall(text)))


def json_tree(text: str) -> JsonNode | None:
    """The parts of a text that is JSON, with the same tokens. None: it has none, or too many, or is too deep."""
    words = _WORD.findall(text)
    if len(words) > 4 * _NODES_MAX or words[0] not in "{[":
        return None
    root = JsonNode("", "", [], words[0] == "[", 0)
    open_nodes, name, at = [root], "", 1
    while at < len(words):
        word, parent = words[at], open_nodes[-1]
        at += 1
        if word in "}]":
            open_nodes.pop()
        elif word == ",":
            name = ""
        elif not parent.is_list and not name:
            name, at = word, at + 1  # and the colon
        else:
            called = str(len(parent.children)) if parent.is_list else name
            empty = word in "{[" and words[at] in "}]"
            if word in "{[" and not empty:
                if len(open_nodes) > _DEPTH_MAX:
                    return None
                node = JsonNode(called, "", [], word == "[", len(open_nodes))
                open_nodes.append(node)
                name = ""
            else:
                node = JsonNode(called, word + words[at] if empty else word, [], False, len(open_nodes))
                at += empty
            parent.children.append(node)
    return root if root.children else None


def _indented(words: list[str]) -> Iterator[str]:
    depth = 0
    for at, word in enumerate(words):
        empty = at > 0 and words[at - 1] + word in {"{}", "[]"}
        if word in "}]":
            depth -= 1
            yield word if empty else f"{_line(depth)}{word}"
        elif word in "{[":
            depth += 1
            yield word if words[at + 1 : at + 2] in (["}"], ["]"]) else f"{word}{_line(depth)}"
        elif word == ",":
            yield f",{_line(depth)}"
        else:
            yield ": " if word == ":" else word


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEPTH_MAX)
