"""Directories and files as users write them: a local path, or a URI. Pure, except that `~` is expanded.

Rules
- A text that begins like a URI (letters, digits and `+ . -`, then a colon) is a URI, with or without slashes behind the
  colon: `dbfs:/data` is never a path. A path of this name is written `./dbfs:/data`.
- Nothing of a path is dropped: `#` and `?` are characters of a name, as they are for Hadoop.
"""

import re
from pathlib import Path
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument

LOCAL = "file"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.DOTALL)
_SHOWN_CHARACTERS = 80


class FileLocation(NamedTuple):
    """scheme: in lower case; LOCAL for a path. authority: the part behind `//`, "" for a path or without such a part.

    path: absolute, without a slash at its end; "/" for the root. text: the whole as a URI.
    """

    scheme: str
    authority: str
    path: str
    text: str


def file_location(option: str, text: str) -> FileLocation:
    """Raises InvalidArgument, which names the option, unless the text is a path or a complete URI."""
    text = text.strip()
    if not text.isprintable():
        raise InvalidArgument(
            f"option {option} contains a control character: {ascii(text)[:_SHOWN_CHARACTERS]}", field=option
        )
    match = _URI.fullmatch(text)
    if match is None:
        return _local(option, text)
    scheme, rest = match[1].lower(), match[2]
    shown = text[:_SHOWN_CHARACTERS]
    if len(scheme) == 1:
        message = f"option {option} looks like a Windows path, which is not supported: {shown}"
        raise InvalidArgument(message, field=option)
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    if scheme == LOCAL and authority not in {"", "localhost"}:
        message = (
            f"option {option} names a file on another host, {authority}: mount it on this machine and use its path"
        )
        raise InvalidArgument(message, field=option)
    if not path.startswith("/") and not (authority and not path):
        message = (
            f"option {option} begins like a URI but has no absolute path: {shown}. Write {scheme}:///…, "
            f"or ./{shown} for a path of this name"
        )
        raise InvalidArgument(message, field=option)
    if scheme == LOCAL:
        return _local(option, path)
    path = path.rstrip("/") or "/"
    prefix = f"{scheme}://{authority}" if rest.startswith("//") else f"{scheme}:"
    return FileLocation(scheme, authority, path, f"{prefix}{path}")


def _local(option: str, text: str) -> FileLocation:
    try:
        path = str(Path(text).expanduser().absolute())
    except RuntimeError as error:
        message = f"option {option}: cannot find the home directory in {text[:_SHOWN_CHARACTERS]}"
        raise InvalidArgument(message, field=option) from error
    return FileLocation(LOCAL, "", path, f"file://{path}")
