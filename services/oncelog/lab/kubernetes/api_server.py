"""The API of the cluster of the current kube context, through one `kubectl proxy` for the whole run.

A kubectl process for each request would be too expensive for requests that repeat every second. The proxy uses the
credentials of the context and listens on a socket in a directory that only this user can enter.
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

from oncelog.lab.failures import LabFailed
from oncelog.runtime.orphan_guard import guarded

_START_DEADLINE_S = 30.0
_TIMEOUT_S = 20.0
_SHOWN_MAX = 500


class CommandFailed(LabFailed):
    """A command, or a request to the cluster, failed. The message quotes its output."""


class ApiServer:
    """Created by `connected`. Each method raises CommandFailed."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def connected(cls) -> AsyncIterator[Self]:
        """Raises CommandFailed if kubectl is missing or its proxy does not start."""
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise CommandFailed("kubectl is not on the PATH: install it")
        with tempfile.TemporaryDirectory(prefix="oncelog-chaos-") as directory:
            socket = Path(directory) / "api"
            command = guarded([kubectl, "proxy", "--unix-socket", str(socket)])
            process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
            try:
                await _until_listening(process)
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
        """One object, or a list."""
        return await self._request("GET", path, params=query)

    async def post(self, path: str, manifest: Mapping[str, object]) -> None:
        """Create an object."""
        await self._request("POST", path, json=manifest)

    async def delete_now(self, path: str) -> None:
        """Delete an object without a grace period."""
        await self._request("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    async def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, path, **options)
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
        except httpx.HTTPStatusError as error:
            raise CommandFailed(
                f"{method} {path} answers {error.response.status_code}: {_message_of(error)}"
            ) from error
        except (httpx.TransportError, ValueError) as error:
            raise CommandFailed(f"{method} {path}: no response from the API server: {error!r}") from error
        return found


def _message_of(error: httpx.HTTPStatusError) -> str:
    """The message of a Kubernetes Status, or the text of the response."""
    try:
        return str(error.response.json()["message"])[:_SHOWN_MAX]
    except (ValueError, KeyError, TypeError):
        return error.response.text.strip()[:_SHOWN_MAX]


async def _until_listening(process: Process) -> None:
    """Return when the proxy has printed its first line."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_DEADLINE_S):
            if not await process.stdout.readline():
                output = (await process.stderr.read()).decode(errors="replace").strip()
                raise CommandFailed(f"`kubectl proxy` failed: {output[-_SHOWN_MAX:] or 'no output'}")
    except TimeoutError as error:
        raise CommandFailed(f"`kubectl proxy` did not listen within {_START_DEADLINE_S:.0f} s") from error
