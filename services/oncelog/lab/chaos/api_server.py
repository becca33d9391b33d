"""The cluster's API, as kubectl reaches it: what is asked every second must not start a program each time.

One `kubectl proxy` lasts as long as the run. It logs in as the current context says, and listens on a socket in a
directory that only this user can enter.
"""

import asyncio
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from oncelog.lab.chaos.target import ChaosFailed
from oncelog.runtime.orphan_guard import guarded

_START_DEADLINE_S = 30.0
_TIMEOUT_S = 20.0
_SHOWN_MAX = 500


class CommandFailed(ChaosFailed):
    """A command, or a request to the cluster, ended with an error; the message quotes what it said."""


class ApiServer:
    """Made by `reached`. Each method raises CommandFailed."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def reached(cls) -> AsyncIterator[Self]:
        """Serve inside the block. Raises CommandFailed: kubectl is missing, or does not start."""
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise CommandFailed("kubectl is not on the PATH: install it")
        with tempfile.TemporaryDirectory(prefix="oncelog-chaos-") as directory:
            socket = Path(directory) / "api"
            command = guarded([kubectl, "proxy", "--unix-socket", str(socket)])
            process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
            try:
                await _listens(process)
                transport = httpx.AsyncHTTPTransport(uds=str(socket))
                async with httpx.AsyncClient(
                    transport=transport, base_url="http://localhost", timeout=_TIMEOUT_S
                ) as client:
                    yield cls(client)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """An object, or a list of them."""
        return await self._ask("GET", path, params=query)

    async def post(self, path: str, manifest: Mapping[str, object]) -> None:
        """Make an object."""
        await self._ask("POST", path, json=manifest)

    async def delete_at_once(self, path: str) -> None:
        """Without waiting for anybody."""
        await self._ask("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    async def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, path, **options)
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
        except httpx.HTTPStatusError as error:
            raise CommandFailed(f"{method} {path} answers {error.response.status_code}: {_said(error)}") from error
        except (httpx.TransportError, ValueError) as error:
            raise CommandFailed(f"{method} {path}: the cluster's API does not answer: {error!r}") from error
        return found


def _said(error: httpx.HTTPStatusError) -> str:
    """The words of a Status, else the text."""
    try:
        return str(error.response.json()["message"])[:_SHOWN_MAX]
    except (ValueError, KeyError, TypeError):
        return error.response.text.strip()[:_SHOWN_MAX]


async def _listens(process: Process) -> None:
    """It says so in one line."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_DEADLINE_S):
            if not await process.stdout.readline():
                said = (await process.stderr.read()).decode(errors="replace").strip()
                raise CommandFailed(f"`kubectl proxy` failed: {said[-_SHOWN_MAX:] or 'it said nothing'}")
    except TimeoutError as error:
        raise CommandFailed(f"`kubectl proxy` does not listen within {_START_DEADLINE_S:.0f} s") from error
