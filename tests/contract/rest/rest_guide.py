"""docs/rest.md as a program: its examples, read from the page, and whether an answer is the one that is written there.

An example is a command and its answer in a block of the language `console`:

    $ curl -K admin.curl "$REST/admin/v2/tenants/shop"
    HTTP/1.1 200 OK
    {"tenant": "shop", "namespaces": [], …}

- A command goes on over lines while it has an open quote or a backslash at the end.
- Of an answer: the status, headers that matter, the body; JSON may be laid out in any way, other text line by line.
- `…` stands for any value, any part of a text, further fields of an object, further elements of a list (each like the
  one before), further lines.
- `$NAME` in an answer takes what stands there the first time, and is the same from then on, in commands too. Without
  quotes it stands for a number.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ELLIPSIS = "…"
_ANY, _REST = "\x00any", "\x00rest"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STATUS = re.compile(r"HTTP/1\.1 (\d{3})\b")
_HEADER = re.compile(r"([a-z-]+): (.*)")
_NAME = re.compile(r"\$([A-Z_]+)")
_METHODS = {"GET", "PUT", "POST", "DELETE", "PATCH"}


@dataclass(frozen=True, slots=True)
class Example:
    """line: of the command, in the page. headers: {name in small letters: pattern}. body: "" where there is none."""

    line: int
    command: str
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class Call:
    """What a command sends. config: the file that it names with -K; empty: none."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: str | None
    config: str


@dataclass(frozen=True, slots=True)
class Answer:
    """headers: with names in small letters."""

    status: int
    headers: Mapping[str, str]
    body: str


# --- reading ----------------------------------------------------------------------------------------------------------


def examples(page: str) -> list[Example]:
    """All of them, in order. Raises ValueError, with the line, for what is not an example."""
    found: list[Example] = []
    for block in _BLOCK.finditer(page):
        lines = block[1].splitlines()
        number = page.count("\n", 0, block.start()) + 2
        starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
        if not starts or starts[0]:
            raise ValueError(f"line {number}: a block begins with `$ ` and a command")
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            found.append(_example(number + start, lines[start:end]))
    return found


def _example(number: int, lines: Sequence[str]) -> Example:
    at = next((index for index, line in enumerate(lines) if _STATUS.match(line)), 0)
    status = _STATUS.match(lines[at])
    if status is None:
        raise ValueError(f"line {number}: no status line follows the command")
    rest = list(lines[at + 1 :])
    headers: dict[str, str] = {}
    while rest and (header := _HEADER.fullmatch(rest[0])):
        headers[header[1]] = header[2]
        rest.pop(0)
    return Example(number, "\n".join(lines[:at])[2:], int(status[1]), headers, "\n".join(rest).strip())


def call_of(command: str, variables: Mapping[str, str]) -> Call:
    """What curl would send. Raises ValueError for an option that is not known here, KeyError for such a variable."""
    pieces = re.split(r"('[^']*')", command.replace("\\\n", " "))
    filled = [piece if piece.startswith("'") else _NAME.sub(lambda m: variables[m[1]], piece) for piece in pieces]
    program, *words = shlex.split("".join(filled))
    if program != "curl":
        raise ValueError(f"not a call of curl: {command}")
    method, url, config, body = "", "", "", None
    headers: dict[str, str] = {}
    left = iter(words)
    for word in left:
        match word:
            case "-X":
                method = next(left)
            case "-K":
                config = next(left)
            case "-H":
                name, _, value = next(left).partition(":")
                headers[name] = value.strip()
            case "--json":
                body = next(left)
                headers |= {"Content-Type": "application/json", "Accept": "application/json"}
            case _ if word.startswith("-") or url:
                raise ValueError(f"{word!r} is not understood in: {command}")
            case _:
                url = word
    method = method or ("GET" if body is None else "POST")
    if method not in _METHODS or not url:
        raise ValueError(f"no method or no address: {command}")
    return Call(method, url, headers, body, config)


# --- comparing --------------------------------------------------------------------------------------------------------


def differences(example: Example, answer: Answer, variables: dict[str, str]) -> list[str]:
    """What is not as it is written; `variables` gains the values that stand where the page has a new name."""
    found = []
    if answer.status != example.status:
        found.append(f"status {answer.status}, written is {example.status}")
    for name, pattern in example.headers.items():
        found += _value(pattern, answer.headers.get(name), name, variables)
    if answer.headers.get("content-type", "").partition(";")[0].endswith("json") and answer.body:
        if not example.body:
            return [*found, "a body that the page does not show"]
        return found + list(_value(read_json(example.body), json.loads(answer.body), "body", variables))
    return found + list(_lines(example.body.splitlines(), answer.body.splitlines(), variables))


def read_json(text: str) -> Any:
    """JSON in which `…` may stand for a value, for fields and for elements. Raises ValueError."""
    out: list[str] = []
    open_brackets: list[str] = []
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|…|[\[\]{}]|[^"…\[\]{}]+', text):
        if token == ELLIPSIS:
            before = "".join(out).rstrip()[-1:]
            in_object = open_brackets[-1:] == ["{"] and before != ":"
            mark = _REST if in_object or before in {",", "["} else _ANY
            out.append(f"{json.dumps(mark)}: 0" if in_object else json.dumps(mark))
            continue
        if token in {"{", "["}:
            open_brackets.append(token)
        elif token in {"}", "]"} and open_brackets:
            open_brackets.pop()
        out.append(token if token.startswith('"') else _NAME.sub(r'"\g<0>"', token))
    return json.loads("".join(out))


def _value(pattern: Any, value: Any, where: str, variables: dict[str, str]) -> Iterator[str]:
    if pattern == _ANY:
        return
    if isinstance(pattern, dict) and isinstance(value, dict):
        yield from _fields(pattern, value, where, variables)
    elif isinstance(pattern, list) and isinstance(value, list):
        yield from _elements(pattern, value, where, variables)
    elif isinstance(pattern, str) and (isinstance(value, str) or _stands_for_number(pattern, value)):
        if not _text(pattern, str(value), variables):
            yield f"{where} is {value!r}, written is {pattern!r}"
    elif type(pattern) is not type(value) or pattern != value:
        yield f"{where} is {value!r}, written is {pattern!r}"


def _stands_for_number(pattern: str, value: object) -> bool:
    return _NAME.fullmatch(pattern) is not None and isinstance(value, int) and not isinstance(value, bool)


def _fields(pattern: dict[str, Any], value: dict[str, Any], where: str, variables: dict[str, str]) -> Iterator[str]:
    shown = {name: each for name, each in pattern.items() if name != _REST}
    for name, each in shown.items():
        if name in value:
            yield from _value(each, value[name], f"{where}.{name}", variables)
        else:
            yield f"{where} has no {name}"
    if _REST not in pattern:
        yield from (f"{where}.{name} is not written" for name in value if name not in shown)


def _elements(pattern: list[Any], value: list[Any], where: str, variables: dict[str, str]) -> Iterator[str]:
    wanted = list(pattern)
    if wanted[-1:] == [_REST]:
        wanted.pop()
        like = _unnamed(wanted[-1]) if wanted else _ANY
        wanted += [like] * (len(value) - len(wanted))
    if len(wanted) != len(value):
        yield f"{where} has {len(value)} elements, written are {len(wanted)}"
        return
    for index, (each, one) in enumerate(zip(wanted, value, strict=True)):
        yield from _value(each, one, f"{where}[{index}]", variables)


def _unnamed(pattern: Any) -> Any:
    """The form alone: a name stands for one value, and this is for others."""
    match pattern:
        case str():
            return _NAME.sub(ELLIPSIS, pattern)
        case list():
            return [_unnamed(each) for each in pattern]
        case dict():
            return {name: _unnamed(each) for name, each in pattern.items()}
        case _:
            return pattern


def _lines(pattern: list[str], lines: list[str], variables: dict[str, str]) -> Iterator[str]:
    """Without an ellipsis they are all there is; with it those that are written come in this order."""
    if ELLIPSIS not in pattern and len(pattern) != len(lines):
        yield f"the body has {len(lines)} lines, written are {len(pattern)}: {lines[:3]}"
        return
    left = iter(lines)
    for wanted in pattern:
        if wanted != ELLIPSIS and not any(_text(wanted, line, variables) for line in left):
            yield f"no line is {wanted!r}"


def _text(pattern: str, value: str, variables: dict[str, str]) -> bool:
    """Names that are new and fit are kept."""
    parts: list[str] = []
    fresh: list[str] = []
    for piece in re.split(r"(…|\$[A-Z_]+)", pattern):
        name = piece[1:] if _NAME.fullmatch(piece) else ""
        if piece == ELLIPSIS:
            parts.append(".*")
        elif name and name not in variables and name not in fresh:
            fresh.append(name)
            parts.append(f"(?P<{name}>.+)")
        elif name and name in fresh:
            parts.append(f"(?P={name})")
        else:
            parts.append(re.escape(variables[name] if name else piece))
    match = re.fullmatch("".join(parts), value, re.DOTALL)
    if match is not None:
        variables |= match.groupdict()
    return match is not None
