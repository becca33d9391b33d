"""The last events of the cluster, the newest first: every live process is asked for its own, and nothing is stored.

A process that has just ended is not asked, so its events are not in the list: its log has them.
"""

import asyncio
import json
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Self

from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument, InvariantViolated, OncelogError
from oncelog.metadata.owners.owners import Owners, Start, address_of
from oncelog.metadata_store.records.registry import Registry
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.events_codec import LIST_EVENTS, answer_of
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.observing.events import EventRing
from oncelog.runtime.observing.last_view import LastView
from oncelog.wire import events_pb2 as pb

#: How long a process that does not answer delays a list.
ASK_TIMEOUT_MS = 2_000
#: How long the list of processes is used without another look.
FRESH_MS = 1_000
_PLACE = re.compile(r"(\d{1,18}):([0-9a-f]{8}):(\d{1,18})", re.ASCII)


class EventPlace(NamedTuple):
    """The order of events, ascending: time, the ring that has it, its number there."""

    at_ms: int
    source: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidArgument."""
        match = _PLACE.fullmatch(text)
        if match is None:
            raise InvalidArgument("before must be `next_before` of a page, or `place` of an event", field="before")
        return cls(int(match[1]), match[2], int(match[3]))

    def __str__(self) -> str:
        return f"{self.at_ms}:{self.source}:{self.number}"


class ListedEvent(NamedTuple):
    """One event, and which process noted it."""

    place: EventPlace
    service: str
    process: str
    event: pb.Event
    fields: dict[str, Any]


class SilentProcess(NamedTuple):
    """A process that was not heard. process: its incarnation or address."""

    service: str
    process: str
    reason: str


class EventList(NamedTuple):
    """One page. next_before: None: there are no older ones."""

    events: Sequence[ListedEvent]
    next_before: EventPlace | None
    silent: Sequence[SilentProcess]


class EventLister:
    """Used by the REST interface, which checks rights."""

    def __init__(
        self, ring: EventRing, registry: Registry, owners: Owners, start: Start, credentials: Credentials = PLAIN
    ) -> None:
        """ring: of this process."""
        self._ring = ring
        self._owners = owners
        self._channels = Channels(credentials)
        self._nodes = LastView(registry.storage_nodes.live, start, fresh_ms=FRESH_MS)
        self._replicas = LastView(registry.metadata.live, start, fresh_ms=FRESH_MS)

    async def page(
        self, *, kinds: Collection[str], within: str, node: str, before: EventPlace | None, limit: int
    ) -> EventList:
        """As `EventFilter`. Takes 3 s at most, also if a process does not answer."""
        request = pb.ListEventsRequest(kinds=kinds, within=within, node=node, limit=limit)
        if before is not None:
            request.before_ms, request.before_source, request.before_number = before
        processes, silent = await self._look()
        self._channels.retain(process for _, process, _ in processes)
        answers = await asyncio.gather(*(self._ask(*process, request) for process in processes))
        heard = {self._ring.source: answer_of(self._ring, request)}
        for answer in answers:
            if isinstance(answer, SilentProcess):
                silent.append(answer)
            else:
                heard.setdefault(answer.source, answer)
        found = [each for answer in heard.values() for each in _listed(answer)]
        found.sort(reverse=True, key=lambda each: each.place)
        more = len(found) > limit or any(len(answer.events) == limit for answer in heard.values())
        page = found[:limit]
        return EventList(page, page[-1].place if more and page else None, silent)

    async def _look(self) -> tuple[list[tuple[str, str, str]], list[SilentProcess]]:
        """(service, name, address) of every process, and why they may not be all that are registered now."""
        nodes, replicas = await asyncio.gather(self._nodes.get(), self._replicas.get())
        found = [("topic_owner", str(one.incarnation), address_of(one)) for one in self._owners.live]
        for name, node in (nodes.value or {}).items():
            found.append(("log_storage", name, join_address(node.host, node.port)))
        for replica in (replicas.value or {}).values():
            if "grpc" in replica.ports:
                address = join_address(replica.host, replica.ports["grpc"])
                found.append(("metadata", address, address))
        problems = {seen.problem for seen in (nodes, replicas) if seen.problem is not None}
        return found, [SilentProcess("zookeeper", "", problem) for problem in sorted(problems)]

    async def _ask(
        self, service: str, process: str, address: str, request: pb.ListEventsRequest
    ) -> pb.ListEventsAnswer | SilentProcess:
        try:
            channel = self._channels.shared(address, key=process)
            return await channel.call(LIST_EVENTS, request, timeout_ms=ASK_TIMEOUT_MS)
        except InvariantViolated:
            raise
        except OncelogError as error:
            return SilentProcess(service, process, error.message)

    async def close(self) -> None:
        await self._channels.close()


def _listed(answer: pb.ListEventsAnswer) -> list[ListedEvent]:
    return [
        ListedEvent(
            EventPlace(event.at_ms, answer.source, event.number),
            answer.service,
            answer.name,
            event,
            json.loads(event.fields_json),
        )
        for event in answer.events
    ]
