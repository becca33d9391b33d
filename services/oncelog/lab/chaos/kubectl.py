"""kubectl as a child process: the current context's cluster, with errors that people can read."""

import asyncio
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from typing import Any, NamedTuple

from oncelog.lab.chaos.api_server import ApiServer, CommandFailed

_TIMEOUT_S = 60.0
_WORD_SHOWN_MAX = 60
#: A list of pods is one line.
_LINE_BYTES_MAX = 8 * 1024 * 1024


class Ended(NamedTuple):
    """How a command has ended, and what it said. told: its words, for messages."""

    told: str
    code: int
    output: str
    errors: str

    def output_of_success(self) -> str:
        """Standard output. Raises CommandFailed unless the code is 0."""
        if self.code:
            said = self.errors.strip() or self.output.strip()
            raise CommandFailed(f"`{self.told}` failed: {said[-500:] or f'exit code {self.code}'}")
        return self.output


async def ended(*words: str, timeout_s: float = _TIMEOUT_S) -> Ended:
    """Run a command to its end, whatever that is. Raises CommandFailed: it is missing, or takes too long."""
    told = shlex.join(word if len(word) <= _WORD_SHOWN_MAX else f"{word[:_WORD_SHOWN_MAX]}…" for word in words)
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
        raise CommandFailed(f"`{told}` did not end within {timeout_s:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ended(told, process.returncode or 0, out.decode(errors="replace"), errors.decode(errors="replace"))


async def run_command(*words: str, timeout_s: float = _TIMEOUT_S) -> str:
    """Standard output of a command. Raises CommandFailed: it is missing, fails, or takes too long."""
    return (await ended(*words, timeout_s=timeout_s)).output_of_success()


class Kubectl:
    """One namespace of the current context."""

    def __init__(self, namespace: str, api: ApiServer) -> None:
        self.namespace = namespace
        self._api = api

    async def run(self, *words: str, timeout_s: float = _TIMEOUT_S) -> str:
        """Raises CommandFailed."""
        return await run_command(*self.words(*words), timeout_s=timeout_s)

    def words(self, *words: str) -> tuple[str, ...]:
        """The command line."""
        return ("kubectl", "--namespace", self.namespace, *words)

    async def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind in the namespace, by its plural. Raises CommandFailed."""
        return list((await self._api.get(self._path(kind), labelSelector=selector))["items"])

    async def nodes(self) -> list[dict[str, Any]]:
        """Raises CommandFailed."""
        return list((await self._api.get("/api/v1/nodes"))["items"])

    async def pod(self, name: str) -> dict[str, Any]:
        """Raises CommandFailed."""
        return await self._api.get(self._path("pods", name))

    def _path(self, *parts: str) -> str:
        return "/".join(("/api/v1/namespaces", self.namespace, *parts))

    async def create(self, kind: str, manifest: Mapping[str, object]) -> None:
        """An object of a kind, by its plural. Raises CommandFailed."""
        await self._api.post(self._path(kind), manifest)

    async def delete(self, kinds: str, selector: str) -> None:
        """Everything of these kinds that has the label, without waiting for its end. Raises CommandFailed."""
        await self.run("delete", kinds, "--selector", selector, "--wait=false")

    async def delete_pod(self, name: str) -> None:
        """And return when it is gone. Raises CommandFailed."""
        await self.run("delete", "pod", name, "--ignore-not-found")

    async def kill_pod(self, name: str) -> None:
        """By force, at once, without waiting for anybody. Raises CommandFailed."""
        await self._api.delete_at_once(self._path("pods", name))

    async def may(self, verb: str, resource: str) -> bool:
        """Whether whoever runs this has the right. Raises CommandFailed: the cluster is not reached.

        kubectl answers on standard output, "no" with an exit code of 1, and warns on standard error as it likes, for
        example that nodes are in no namespace.
        """
        answer = await ended(*self.words("auth", "can-i", verb, resource, "--request-timeout", "20s"))
        last = answer.output.strip().rpartition("\n")[2].strip()
        if last == "yes" or last.startswith("no"):
            return last == "yes"
        answer.output_of_success()
        raise CommandFailed(f"`{answer.told}` answers neither yes nor no: {answer.output.strip()[-500:]!r}")
