"""The contexts file: addresses and credentials of clusters by name, and which one is current.

$XDG_CONFIG_HOME/oncelog/contexts.json, by default ~/.config/oncelog/contexts.json, readable by its owner only:

    {"format": 1, "current": "prod", "contexts": {"prod": {"url": "oncelog+tls://…", "admin_url": "https://…",
        "token_file": "/…/prod.token", "tls_ca_file": "/…/ca.crt"}}}

A field that is not set is left out. The file names token files and holds no token.
"""

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from oncelog.client.network.addresses import parse_http_url, parse_url
from oncelog.core.errors import Conflict, InvalidArgument, NotFound
from oncelog.core.names import check_part
from oncelog.runtime.whole_file import replace_file

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Context:
    """How to reach one cluster. None: not set, so the default applies."""

    url: str | None = None
    admin_url: str | None = None
    token_file: str | None = None
    tls_ca_file: str | None = None

    def values(self) -> dict[str, str]:
        """{field: value} of the fields that are set."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in every.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name. current: the one that commands use; None: none."""

    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Context:
        """Raises NotFound."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFound(f"there is no context {name}; known are: {known}", context=name)
        return self.contexts[name]

    def added(self, name: str, context: Context) -> "Contexts":
        """Raises InvalidName, InvalidArgument, Conflict."""
        check_part(name, field="context")
        if name in self.contexts:
            raise Conflict(f"context {name} exists: delete it first (oncelog context delete {name})", context=name)
        if not context.values():
            raise InvalidArgument("a context needs --url, --admin-url or both", field="url")
        if context.url is not None:
            parse_url(context.url)
        if context.admin_url is not None and "@" in parse_http_url(context.admin_url, "--admin-url"):
            message = "--admin-url has a user, and contexts keep no password: give the URL with each command"
            raise InvalidArgument(message, field="admin_url")
        return Contexts({**self.contexts, name: context}, self.current)

    def without(self, name: str) -> "Contexts":
        """If it was the current one, there is none afterwards. Raises NotFound."""
        self.named(name)
        rest = {each: context for each, context in self.contexts.items() if each != name}
        return Contexts(rest, None if self.current == name else self.current)

    def using(self, name: str | None) -> "Contexts":
        """Raises NotFound."""
        if name is not None:
            self.named(name)
        return Contexts(self.contexts, name)


def contexts_path() -> Path:
    """Raises InvalidArgument for a user without a home directory."""
    home = os.environ.get("XDG_CONFIG_HOME")
    # The XDG rules: a relative path is ignored.
    if home and Path(home).is_absolute():
        return Path(home) / "oncelog" / "contexts.json"
    try:
        base = Path.home() / ".config"
    except RuntimeError as error:
        message = f"no home directory: user {os.geteuid()} has none in the user database; set HOME or XDG_CONFIG_HOME"
        raise InvalidArgument(message, field="home") from error
    return base / "oncelog" / "contexts.json"


def read_contexts(path: Path) -> Contexts:
    """Raises InvalidArgument, which names the file, and OSError."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Contexts()
    try:
        return _parsed(json.loads(text))
    except (ValueError, InvalidArgument) as error:
        why = error.message if isinstance(error, InvalidArgument) else str(error)
        raise InvalidArgument(
            f"{path} is no contexts file: {why}; correct it, or move it away and add the contexts again",
            field="contexts",
        ) from error


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file atomically. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    stored = {name: contexts.contexts[name].values() for name in sorted(contexts.contexts)}
    text = json.dumps({"format": FORMAT, "current": contexts.current, "contexts": stored}, indent=2)
    replace_file(path, f"{text}\n".encode(), secret=True)


def _parsed(data: Any) -> Contexts:
    if not isinstance(data, dict) or set(data) - {"format", "current", "contexts"}:
        raise InvalidArgument("it must be an object with format, current and contexts", field="contexts")
    if data.get("format") != FORMAT:
        message = f"format is {data.get('format')!r}, and this version reads {FORMAT}"
        raise InvalidArgument(message, field="format")
    stored, current = data.get("contexts", {}), data.get("current")
    if not isinstance(stored, dict) or not (current is None or current in stored):
        raise InvalidArgument(f"current is {current!r}, which is not in contexts", field="current")
    return Contexts({name: _context(name, given) for name, given in stored.items()}, current)


def _context(name: str, given: Any) -> Context:
    known = {each.name for each in fields(Context)}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidArgument(f"context {name} must be an object of texts", field=name)
    if unknown := set(given) - known:
        message = (
            f"context {name} has unknown fields: {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}"
        )
        raise InvalidArgument(message, field=name)
    return Context(**given)
