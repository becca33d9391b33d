"""Calls of the cluster's REST with bodies in JSON, on behalf of one caller: with its token, and no
rights of the door."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from oncelog_doors.rest.ports import RestPort

_JSON = {"content-type": "application/json"}


class JsonAnswer(NamedTuple):
    """value: the body as JSON; None: it has none. tag: under which the value may be replaced; empty: it has none."""

    status: int
    body: bytes
    value: Any
    tag: str

    @property
    def failed(self) -> bool:
        return self.status >= 300


class JsonCalls:
    """authorization: the header of the caller; None: it has sent none."""

    def __init__(self, cluster: RestPort, authorization: str | None) -> None:
        self._cluster, self._authorization = cluster, authorization

    async def ask(self, method: str, target: str, body: Any = None, headers: Mapping[str, str] = {}) -> JsonAnswer:
        """body: None: none. Raises OncelogError for a call that has not reached REST."""
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self._cluster.ask(
            method, target, data, headers={**_JSON, **headers}, authorization=self._authorization
        )
        try:
            value = json.loads(answer.body) if answer.body else None
        except ValueError:
            value = None
        return JsonAnswer(answer.status, answer.body, value, answer.headers.get("etag", ""))
