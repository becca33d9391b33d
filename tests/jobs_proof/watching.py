"""The visible results of a job: messages of topics by REST, and files in an export's directory."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

from oncelog.core.names import parse_topic
from oncelog_spark.sink.names import HIDDEN
from tests.cluster.cluster_fixture import REQUEST_S, Cluster, rest_path

NAMESPACE = "public/default"


class TopicWatch:
    """Polls over one connection, because a stage may be short."""

    def __init__(self, cluster: Cluster) -> None:
        address = f"http://{cluster.serving('metadata-1', 'http')}"
        self._client = httpx.AsyncClient(base_url=address, timeout=REQUEST_S, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.aclose()

    async def counts(self, topics: Sequence[str]) -> list[int] | None:
        """Number of messages in each topic; 0: it does not exist. None: an owner is dead or new, and does not
        answer."""
        found = await asyncio.gather(*map(self._count, topics))
        known = [count for count in found if count is not None]
        return known if len(known) == len(found) else None

    async def _count(self, topic: str) -> int | None:
        try:
            answer = await self._client.get(f"{rest_path(topic)}/stats")
        except httpx.TimeoutException:
            return None
        if answer.status_code == 404:
            return 0
        assert answer.status_code in {200, 503, 504}, answer.text
        told = answer.json() if answer.status_code == 200 else {}
        return int(told["message_count"]) if told.get("phase") == "serving" else None

    async def topics(self) -> list[str]:
        """The full names of all topics and partitions."""
        answer = await self._client.get(f"/admin/v2/persistent/{NAMESPACE}")
        assert answer.status_code == 200, answer.text
        return sorted(answer.json())

    async def hidden(self, target: str, kind: str) -> str:
        """The hidden topic of this kind (journal, stage.0) of a job; "": it does not exist yet."""
        prefix = f"{NAMESPACE}/{HIDDEN}{parse_topic(target).local_full}."
        return next((name for name in await self.topics() if name.startswith(prefix) and name.endswith(kind)), "")


class ExportWatch:
    """The directory of an export. Files that existed at `begin` do not count."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runs: set[str] = set()
        self._manifests = 0

    def begin(self) -> None:
        self._runs, self._manifests = self._runs_now(), self._manifests_now()

    def observe(self) -> tuple[int, bool, int]:
        """Finished tasks, whether all files are in place, manifests."""
        tasks, in_place = 0, False
        for run in self._runs_now() - self._runs:
            tasks += sum(name.startswith("task_") for name in _names(self._directory / run / "_temporary/0"))
            in_place = in_place or (self._directory / run / "_SUCCESS").exists()
        return tasks, in_place, self._manifests_now() - self._manifests

    def _runs_now(self) -> set[str]:
        return {name for name in _names(self._directory) if name.startswith("run=")}

    def _manifests_now(self) -> int:
        return len(_names(self._directory / "_manifests"))


def _names(directory: Path) -> list[str]:
    """Empty for a directory that does not exist, or was deleted."""
    with suppress(FileNotFoundError):
        return [path.name for path in directory.iterdir()]
    return []
