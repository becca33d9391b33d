"""What a page is, and what it is asked for."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.rest_reading import Asker, Block, Reading

QUERY_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class View:
    """One request for a page. path: without the query. parts: of the path, by name. me: the answer of /admin/v2/me.
    csrf: see `forms`. payloads: the console may show values of messages. until_s: see `Reading.get`. told: the action
    that was just done."""

    path: str
    parts: Mapping[str, str]
    query: Mapping[str, str]
    asker: Asker
    reading: Reading
    me: Block
    csrf: Callable[[str], str]
    payloads: bool = True
    until_s: float = float("inf")
    told: str | None = None

    @property
    def caller(self) -> Caller:
        return self.asker.caller

    @property
    def topic(self) -> str:
        """Full name, of a page with {tenant}, {namespace} and {topic}."""
        return "/".join(self.parts[name] for name in ("tenant", "namespace", "topic"))

    @property
    def namespace(self) -> str:
        return "/".join(self.parts[name] for name in ("tenant", "namespace"))

    def may(self, right: str, namespace: str) -> bool:
        """Whether the viewer has the right, as far as it is known: what it may not do is not offered."""
        return self.caller.superuser or (self.me.known and right in self.me.value["namespaces"].get(namespace, ()))

    async def read(self, target: str) -> Block:
        """The answer of a GET, at most 1 s old. Ask for several at once with `read_all`."""
        return await self.reading.get(self.asker, target, until_s=self.until_s)

    async def read_all(self, *targets: str) -> list[Block]:
        return list(await asyncio.gather(*(self.read(target) for target in targets)))

    async def read_fresh(self, target: str) -> Block:
        """The answer of a request that begins now: what an action would lose."""
        return await self.reading.get(self.asker, target, fresh=True)

    def url(self, **changed: object) -> str:
        """This page with other query parameters; None removes one."""
        given = {**self.query, "done": None, **changed}
        kept = {name: str(value) for name, value in given.items() if value is not None and value != ""}
        return f"{self.path}?{urlencode(kept)}" if kept else self.path


def namespace_of(view: View) -> str:
    """The namespace in the query of a list; empty: all. Raises InvalidArgument."""
    namespace = view.query.get("namespace", "")
    parts = namespace.split("/")
    if namespace and (len(parts) != 2 or not all(parts)):
        raise InvalidArgument(f"namespace must be tenant/namespace, not {namespace[:100]}", field="namespace")
    return namespace


@dataclass(frozen=True, slots=True)
class Page:
    """path: with {parts}, below /console/. template: its file; the context is what `collect` returns, and `view`.
    interval_s: how often a live page is rendered; None: the page is not live. live_when: which views of it are live;
    None: all. key: it is in the navigation, and the
    keys `g` and this one go to it.
    """

    path: str
    title: str
    template: str
    collect: Callable[[View], Awaitable[dict[str, Any]]]
    interval_s: float | None = 1.0
    key: str | None = None
    live_when: Callable[[View], bool] | None = None

    def is_live(self, view: View) -> bool:
        return self.interval_s is not None and (self.live_when is None or self.live_when(view))
