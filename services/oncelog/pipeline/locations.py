"""Directories and files as users write them: a path of this machine, or a URI. Pure but for the home directory.

Rules
- What begins like a URI (letters, digits and `+ . -`, then a colon) is one, with and without slashes behind the colon:
  `dbfs:/data` is never a path. A path of such a name is written `./dbfs:/data`.
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
    """scheme: in small letters; LOCAL for a path. authority: what follows `//`, "" for a path and where there is none.

    path: absolute, without a slash at its end; "/" for the root. text: the whole as a URI.
    """

    scheme: str
    authority: str
    path: str
    text: str


def file_location(option: str, text: str) -> FileLocation:
    """Raises InvalidArgument, which names the option, for what is neither an unambiguous path nor a whole URI."""
    text = text.strip()
    if not text.isprintable():
        raise InvalidArgument(
            f"option {option} has a control character: {ascii(text)[:_SHOWN_CHARACTERS]}", field=option
        )
    match = _URI.fullmatch(text)
    if match is None:
        return _local(option, text)
    scheme, rest = match[1].lower(), match[2]
    shown = text[:_SHOWN_CHARACTERS]
    if len(scheme) == 1:
        message = f"option {option} looks like a path of Windows, which this machine has not: {shown}"
        raise InvalidArgument(message, field=option)
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    if scheme == LOCAL and authority not in {"", "localhost"}:
        message = f"option {option} names a file of another host, {authority}: mount it here, and give its path"
        raise InvalidArgument(message, field=option)
    if not path.startswith("/") and not (authority and not path):
        message = (
            f"option {option} begins like a URI and has no whole path: {shown}. Write {scheme}:///…, "
            f"or ./{shown} for a path of that name"
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
        message = f"option {option}: there is no home directory for {text[:_SHOWN_CHARACTERS]}"
        raise InvalidArgument(message, field=option) from error
    return FileLocation(LOCAL, "", path, f"file://{path}")
