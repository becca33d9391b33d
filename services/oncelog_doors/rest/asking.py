"""The cluster's REST on behalf of one request: with the token that the caller has sent, and no rights of the door."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Request

from oncelog.core.errors import OncelogError
from oncelog_doors.core.rest.refusals import Refused, refused_by, refused_for
from oncelog_doors.rest.json_calls import JsonCalls
from oncelog_doors.rest.ports import RestPort

ResultT = TypeVar("ResultT")
#: Attempts to change a value that others change, too.
_CHANGES_MAX = 5
_OTHER_VALUE = 412
_NOT_FOUND = 404
#: Partitions that are asked at once.
_AT_ONCE = 16


class Tagged(NamedTuple):
    """A value, and the tag under which it may be replaced."""

    value: Any
    tag: str


class Asking:
    """Of one request."""

    def __init__(self, cluster: RestPort, authorization: str | None) -> None:
        self._calls = JsonCalls(cluster, authorization)

    async def get(self, path: str, **query: str | int) -> Any:
        """The answer as JSON. Raises Refused."""
        return (await self.get_tagged(path, **query)).value

    async def get_tagged(self, path: str, **query: str | int) -> Tagged:
        """Raises Refused."""
        return await self._ask("GET", f"{path}?{urlencode(query)}" if query else path)

    async def change(self, method: str, path: str, body: Any = None, *, tag: str = "") -> None:
        """body None: none. tag: of the value that may be replaced; empty: of any. Raises Refused."""
        await self._ask(method, path, body, {"if-match": tag} if tag else {})

    async def replace(self, path: str, change: Callable[[Any], Any], *, at: str = "") -> None:
        """Set a value to what `change` makes of the present one; None unsets it. Changes of others meanwhile are kept.
        path: where the present value is; at: where it is set, if elsewhere. Raises Refused, and as `change`."""
        for attempt in range(1, _CHANGES_MAX + 1):
            present = await self.get_tagged(path)
            value = change(present.value)
            try:
                await self.change("DELETE" if value is None else "POST", at or path, value, tag=present.tag)
            except Refused as refused:
                if refused.status != _OTHER_VALUE or attempt == _CHANGES_MAX:
                    raise
            else:
                return

    async def _ask(self, method: str, target: str, body: Any = None, headers: Mapping[str, str] = {}) -> Tagged:
        try:
            answer = await self._calls.ask(method, target, body, headers)
        except OncelogError as error:
            raise refused_for(error) from error
        if answer.failed:
            raise refused_by(answer.status, answer.value)
        return Tagged(answer.value, answer.tag)


@contextmanager
def passed_over() -> Iterator[None]:
    """What is missing: it was deleted meanwhile, or was never there."""
    try:
        yield
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise


async def each_of(names: Iterable[str], do: Callable[[str], Awaitable[ResultT]]) -> dict[str, ResultT]:
    """{name: result}, a bounded number at once. Raises the first error."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> ResultT:
        async with slots:
            return await do(name)

    every = list(names)
    return dict(zip(every, await asyncio.gather(*map(one, every)), strict=True))


async def _asking(request: Request) -> Asking:
    return Asking(request.app.state.cluster, request.headers.get("authorization"))


async def _body(request: Request) -> Any:
    data = await request.body()
    if not data.strip():
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "body: it is not valid JSON") from error


AskingOf = Annotated[Asking, Depends(_asking)]
#: The body as JSON, whatever its content type; None: there is none.
BodyOf = Annotated[Any, Depends(_body)]
