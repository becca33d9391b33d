"""kubectl for one namespace of the current kube context."""

import asyncio
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from typing import Any, NamedTuple

from oncelog.lab.kubernetes.api_server import ApiServer, CommandFailed

_TIMEOUT_S = 60.0
_WORD_SHOWN_MAX = 60
#: A list of pods is one line of output.
_LINE_BYTES_MAX = 8 * 1024 * 1024


class CommandResult(NamedTuple):
    """The result of a command. command: as it is shown in messages."""

    command: str
    code: int
    output: str
    errors: str

    def output_of_success(self) -> str:
        """Standard output. Raises CommandFailed unless the code is 0."""
        if self.code:
            output = self.errors.strip() or self.output.strip()
            raise CommandFailed(f"`{self.command}` failed: {output[-500:] or f'exit code {self.code}'}")
        return self.output


async def _result_of(*words: str, timeout_s: float = _TIMEOUT_S) -> CommandResult:
    """Run a command, whatever its exit code is. Raises CommandFailed if it is missing or takes too long."""
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
    return CommandResult(shown, process.returncode or 0, out.decode(errors="replace"), errors.decode(errors="replace"))


async def run_command(*words: str, timeout_s: float = _TIMEOUT_S) -> str:
    """Standard output of a command. Raises CommandFailed if it is missing, fails or takes too long."""
    return (await _result_of(*words, timeout_s=timeout_s)).output_of_success()


class Kubectl:
    """One namespace. Each method that talks to the cluster raises CommandFailed."""

    def __init__(self, namespace: str, api: ApiServer) -> None:
        self.namespace = namespace
        self._api = api

    async def run(self, *words: str, timeout_s: float = _TIMEOUT_S) -> str:
        return await run_command(*self.words(*words), timeout_s=timeout_s)

    def words(self, *words: str) -> tuple[str, ...]:
        """The command line."""
        return ("kubectl", "--namespace", self.namespace, *words)

    async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind, named by its plural."""
        return list((await self._api.get(self._path(kind), labelSelector=selector))["items"])

    async def nodes(self) -> list[dict[str, Any]]:
        return list((await self._api.get("/api/v1/nodes"))["items"])

    async def pod(self, name: str) -> dict[str, Any]:
        return await self._api.get(self._path("pods", name))

    def _path(self, *parts: str) -> str:
        return "/".join(("/api/v1/namespaces", self.namespace, *parts))

    async def create(self, kind: str, manifest: Mapping[str, object]) -> None:
        """Create an object of a kind, named by its plural."""
        await self._api.post(self._path(kind), manifest)

    async def delete(self, kinds: str, selector: str) -> None:
        """Delete all objects of these kinds with the label. Does not wait for their end."""
        await self.run("delete", kinds, "--selector", selector, "--wait=false")

    async def delete_pod(self, name: str) -> None:
        """Delete a pod, and return when it is gone."""
        await self.run("delete", "pod", name, "--ignore-not-found")

    async def kill_pod(self, name: str) -> None:
        """Delete a pod without a grace period. Does not wait for its end."""
        await self._api.delete_now(self._path("pods", name))

    async def may(self, verb: str, resource: str) -> bool:
        """Whether the user of the context has this permission.

        kubectl prints the answer on standard output, and "no" has the exit code 1. On standard error it prints
        warnings, for example that nodes are not namespaced.
        """
        answer = await _result_of(*self.words("auth", "can-i", verb, resource, "--request-timeout", "20s"))
        last = answer.output.strip().rpartition("\n")[2].strip()
        if last == "yes" or last.startswith("no"):
            return last == "yes"
        answer.output_of_success()
        raise CommandFailed(f"`{answer.command}` answers neither yes nor no: {answer.output.strip()[-500:]!r}")
