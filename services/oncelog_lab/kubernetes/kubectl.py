"""kubectl for one namespace of the current kube context.

Requests that repeat every second go through one `kubectl proxy` for the whole run, because a kubectl process for each
would be too expensive. The proxy uses the credentials of the context and listens on a socket in a directory that only
this user can enter.
"""

import asyncio
import shlex
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from oncelog.runtime.orphan_guard import guarded
from oncelog_lab.failures import LabFailed

_START_DEADLINE_S = 30.0
_REQUEST_TIMEOUT_S = 20.0
_COMMAND_TIMEOUT_S = 60.0
_SHOWN_MAX = 500
_WORD_SHOWN_MAX = 60
#: A list of pods is one line of output.
_LINE_BYTES_MAX = 8 * 1024 * 1024


class CommandFailed(LabFailed):
    """A command, or a request to the cluster, failed. The message quotes its output."""


async def run_command(*words: str, timeout_s: float = _COMMAND_TIMEOUT_S, succeeds: bool = True) -> str:
    """Standard output of a command. Raises CommandFailed if it is missing or takes too long.

    succeeds: also raise if its exit code is not 0; otherwise, only if it printed nothing on standard output.
    """
    shown = shlex.join(word if len(word) <= _WORD_SHOWN_MAX else f"{word[:_WORD_SHOWN_MAX]}…" for word in words)
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, limit=_LINE_BYTES_MAX
        )
    except FileNotFoundError as error:
        raise CommandFailed(f"{words[0]} is not on the PATH: install it") from error
    try:
        async with asyncio.timeout(timeout_s):
            out, errors = await process.communicate()
    except TimeoutError as error:
        raise CommandFailed(f"`{shown}` did not end within {timeout_s:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    output = out.decode(errors="replace")
    if process.returncode and (succeeds or not output.strip()):
        reason = errors.decode(errors="replace").strip() or output.strip() or f"exit code {process.returncode}"
        raise CommandFailed(f"`{shown}` failed: {reason[-_SHOWN_MAX:]}")
    return output


class Kubectl:
    """Created by `connected`. Each method that talks to the cluster raises CommandFailed."""

    def __init__(self, namespace: str, api: httpx.AsyncClient) -> None:
        self.namespace = namespace
        self._api = api

    @classmethod
    @asynccontextmanager
    async def connected(cls, namespace: str) -> AsyncIterator[Self]:
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
                url = "http://localhost"
                async with httpx.AsyncClient(transport=transport, base_url=url, timeout=_REQUEST_TIMEOUT_S) as api:
                    yield cls(namespace, api)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    # --- requests through the proxy -----------------------------------------------------------------------------------

    async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind, named by its plural."""
        return list((await self._request("GET", self._path(kind), params={"labelSelector": selector}))["items"])

    async def nodes(self) -> list[dict[str, Any]]:
        return list((await self._request("GET", "/api/v1/nodes"))["items"])

    async def pod(self, name: str) -> dict[str, Any]:
        return await self._request("GET", self._path("pods", name))

    async def create(self, kind: str, manifest: Mapping[str, object]) -> None:
        """Create an object of a kind, named by its plural."""
        await self._request("POST", self._path(kind), json=manifest)

    async def kill_pod(self, name: str) -> None:
        """Delete a pod without a grace period. Does not wait for its end."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await self._request("DELETE", self._path("pods", name), json=options)

    def _path(self, *parts: str) -> str:
        return "/".join(("/api/v1/namespaces", self.namespace, *parts))

    async def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            answer = await self._api.request(method, path, **options)
            found: dict[str, Any] = answer.json()
        except (httpx.TransportError, ValueError) as error:
            raise CommandFailed(f"{method} {path}: no response from the API server: {error!r}") from error
        if answer.is_error:
            reason = str(found.get("message", found))[:_SHOWN_MAX]
            raise CommandFailed(f"{method} {path} answers {answer.status_code}: {reason}")
        return found

    # --- commands -----------------------------------------------------------------------------------------------------

    def words(self, *words: str) -> tuple[str, ...]:
        """The command line."""
        return ("kubectl", "--namespace", self.namespace, *words)

    async def run(self, *words: str, timeout_s: float = _COMMAND_TIMEOUT_S) -> str:
        return await run_command(*self.words(*words), timeout_s=timeout_s)

    async def delete(self, kinds: str, selector: str) -> None:
        """Delete all objects of these kinds with the label. Does not wait for their end."""
        await self.run("delete", kinds, "--selector", selector, "--wait=false")

    async def delete_pod(self, name: str) -> None:
        """Delete a pod, and return when it is gone."""
        await self.run("delete", "pod", name, "--ignore-not-found")

    async def may(self, verb: str, resource: str) -> bool:
        """Whether the user of the context has this permission.

        kubectl prints the answer on standard output, and "no" has the exit code 1. On standard error it prints
        warnings, for example that nodes are not namespaced.
        """
        words = self.words("auth", "can-i", verb, resource, "--request-timeout", f"{_REQUEST_TIMEOUT_S:.0f}s")
        answer = (await run_command(*words, succeeds=False)).strip().rpartition("\n")[2].strip()
        if answer != "yes" and not answer.startswith("no"):
            raise CommandFailed(f"`{shlex.join(words)}` answers neither yes nor no: {answer[-_SHOWN_MAX:]!r}")
        return answer == "yes"


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
