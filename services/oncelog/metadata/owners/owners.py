"""The topic owners as this replica sees them: their sessions, their streams, and which of them are suspected dead.

Rules
- ZooKeeper shows sessions; this replica observes streams. Only `core.placement.owner_suspicion` combines the two
  into a suspicion (hazard living-owner-suspected). When a stream closes, the owner's address is probed at once, and
  again for a while: a process that is being killed may close its streams a moment before its listening socket.
- The probe uses the resolved IP address, because a pod's host name disappears with the pod or later names another one.
- If another incarnation listens at an owner's address, then the former process has lost the port. This counts as a
  refused connection. (A host name may resolve to another machine by then, which is one more reason for owners to report
  IP addresses.)
- A draining owner keeps its topics until they are moved, and gets no new ones. An owner without a stream here gets none
  either, unless there is no other: it may be dead while its session has not ended yet. An owner of a version below
  the cluster's level gets none at all.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Protocol

from oncelog.core.address import join_address
from oncelog.core.ids import Incarnation
from oncelog.core.placement.owner_suspicion import (
    ConnectionAccepted,
    ConnectionRefused,
    HostUnreachable,
    OwnerSuspicion,
    ProbeOwner,
    SessionsUpdated,
    StreamClosed,
    StreamOpened,
    SuspicionEvent,
)
from oncelog.core.placement.topic_placement import OwnersView
from oncelog.metadata.owners.connected_owner import ConnectedOwner, now_ms
from oncelog.metadata_store.records.registry import LiveOwner, Registry
from oncelog.rpc.reachability import Reachability, reach
from oncelog.runtime.observing.events import EventKind, EventRing

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_MS = 1_000
#: How long one probe delays the next. A listener accepts, or a host refuses, within a few milliseconds.
PROBE_OVERLAP_AFTER_MS = 100
#: Pauses before the probes of an owner whose stream has closed. Their sum exceeds ZooKeeper's default maximum session
#: timeout, 40 s.
PROBE_PAUSES_MS = (0, 2, 5, 10, 20, 50, 100, 200, 500, *(1_000,) * 40)

Probe = Callable[[str], Awaitable[Reachability]]
Start = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class OwnerListener(Protocol):
    """Acts on the loss and the draining of owners."""

    def owner_lost(self, owner: Incarnation) -> None:
        """The owner's session has ended, or the owner is suspected: place its topics on other owners."""

    def owner_drains(self, owner: Incarnation) -> None:
        """The owner is about to stop: move its topics while it still serves."""


async def probe(address: str) -> Reachability:
    """Whether a process listens at `address`."""
    return await reach(address, timeout_ms=PROBE_TIMEOUT_MS)


class Owners:
    """`follow` runs as long as the process. Streams and look-ups call the other methods."""

    def __init__(
        self, registry: Registry, start: Start, *, probe: Probe = probe, events: EventRing | None = None
    ) -> None:
        self.events = events or EventRing("metadata")
        self._registry = registry
        self._start = start
        self._probe = probe
        self._suspicion = OwnerSuspicion()
        self._live: dict[Incarnation, LiveOwner] = {}
        self._links: dict[Incarnation, ConnectedOwner] = {}
        self._numbers = count(1)
        self._changed = asyncio.Event()
        #: None before the process serves and after it stops serving: then closed streams prove nothing about owners
        self.listener: OwnerListener | None = None
        #: the cluster's, as this process has read it last
        self.level: Callable[[], int] = lambda: 0

    # --- state --------------------------------------------------------------------------------------------------------

    def find(self, owner: Incarnation) -> LiveOwner | None:
        """The registration of the owner, if it has a session."""
        return self._live.get(owner)

    def link(self, owner: Incarnation) -> ConnectedOwner | None:
        """The owner's open stream at this replica, if any."""
        return self._links.get(owner)

    @property
    def live(self) -> list[LiveOwner]:
        return [self._live[owner] for owner in sorted(self._live)]

    @property
    def usable(self) -> list[LiveOwner]:
        """The owners that take topics now."""
        able = [owner for owner in self.live if owner.version >= self.level()]
        return [owner for owner in able if not self.is_lost(owner.incarnation) and not self.drains(owner)]

    def is_lost(self, owner: Incarnation) -> bool:
        """Whether the owner has no session or is suspected dead."""
        return owner not in self._live or owner in self._suspicion.suspected

    def drains(self, owner: LiveOwner) -> bool:
        link = self._links.get(owner.incarnation)
        return link is not None and link.draining

    def seen_for(self, owner: Incarnation | None) -> OwnersView:
        """The owners to consider when placing a topic of `owner`: itself, and the others that may get a topic.

        Draining owners are left out. So are owners without a stream here, if another owner has one: an owner that died
        before this replica started may still have a session, and is not suspected yet.
        """
        others = [one.incarnation for one in self.live if one.incarnation != owner and not self.drains(one)]
        connected = [other for other in others if other in self._links]
        own = [owner] if owner is not None and owner in self._live else []
        versions = {one.incarnation: one.version for one in self.live}
        return OwnersView((*own, *(connected or others)), self._suspicion.suspected, versions, self.level())

    @property
    def change(self) -> asyncio.Event:
        """An event that is set at the next change. Take it before reading the state, so that no change is missed."""
        return self._changed

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Follow the owners' sessions; never returns. Raises StoreUnavailable if this process's session was closed."""
        async for records in self._registry.owners.watch():
            self._see(records)

    async def refresh(self) -> None:
        """Read the sessions now: an owner missing from an older view may be alive (hazard former-incarnation)."""
        self._see(await self._registry.owners.live())

    def _see(self, records: dict[str, LiveOwner]) -> None:
        before, self._live = self._live, {record.incarnation: record for record in records.values()}
        self._take(SessionsUpdated(tuple(sorted(self._live))))
        for owner in sorted(before.keys() - self._live.keys()):
            self.events.note(EventKind.OWNER, logger, "the session of a topic owner has ended", node=owner)
            if self.listener is not None:
                self.listener.owner_lost(owner)
        if before != self._live:
            self._notify_change()

    # --- streams ------------------------------------------------------------------------------------------------------

    def opened(self, owner: Incarnation, address: str, *, draining: bool) -> ConnectedOwner:
        """Record that an owner opened its stream."""
        link = ConnectedOwner(owner, address, next(self._numbers), probe_address=address)
        self._links[owner] = link
        self._take(StreamOpened(owner, link.number))
        for other in self._live.values():
            if other.incarnation != owner and address_of(other) == address:
                self._take(ConnectionRefused(other.incarnation))
        self.updated(link, draining=draining, topic_count=0)
        self._notify_change()
        return link

    def updated(self, link: ConnectedOwner, *, draining: bool, topic_count: int) -> None:
        """Record the state that an owner reported."""
        link.topic_count = topic_count
        if draining and not link.draining:
            link.draining = True
            self.events.note(EventKind.OWNER, logger, "a topic owner is draining", node=link.owner)
            if self.listener is not None:
                self.listener.owner_drains(link.owner)
            self._notify_change()

    def closed(self, link: ConnectedOwner) -> None:
        """Record that the stream has ended, for whatever reason."""
        if self._links.get(link.owner) is link:
            del self._links[link.owner]
        if self.listener is not None:
            answered = link.heartbeats.answered_recently(now_ms())
            self._take(StreamClosed(link.owner, link.number, answered), address=link.probe_address)

    # --- suspicion ----------------------------------------------------------------------------------------------------

    def _take(self, event: SuspicionEvent, *, address: str = "") -> None:
        for effect in self._suspicion.handle(event):
            if isinstance(effect, ProbeOwner):
                self._start(self._probe_until_clear(effect, address))
                continue
            self.events.note(
                EventKind.OWNER, logger,
                "a topic owner is suspected dead: its stream closed, and nothing listens at its address",
                level="warning", node=effect.owner, because=type(event).__name__,
            )  # fmt: skip
            if self.listener is not None:
                self.listener.owner_lost(effect.owner)
            self._notify_change()

    async def _probe_until_clear(self, effect: ProbeOwner, address: str) -> None:
        """Probe until the result is clear, the owner's stream is open again, or its session has ended.

        A probe without an answer keeps running beside the next one. A connection request that was sent while the
        address disappeared is never answered, and waiting a second for it would delay the takeover by a second.
        """
        attempt: asyncio.Task[Reachability] | None = None
        async with asyncio.TaskGroup() as attempts:
            for pause_ms in PROBE_PAUSES_MS:
                await asyncio.sleep(pause_ms / 1000)
                if self.is_lost(effect.owner) or effect.owner in self._links:
                    return
                attempt = attempts.create_task(self._probe_once(effect, address))
                await asyncio.wait({attempt}, timeout=PROBE_OVERLAP_AFTER_MS / 1000)
        if attempt is not None and attempt.result() is Reachability.ACCEPTED:
            self._take(ConnectionAccepted(effect.owner, effect.stream))

    async def _probe_once(self, effect: ProbeOwner, address: str) -> Reachability:
        answer = await self._probe(address)
        if answer is Reachability.REFUSED:
            self._take(ConnectionRefused(effect.owner, effect.stream))
        elif answer is Reachability.UNREACHABLE:
            self._take(HostUnreachable(effect.owner, effect.stream))
        return answer

    def _notify_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def address_of(owner: LiveOwner) -> str:
    """host:port of the owner's gRPC port, for other services."""
    return join_address(owner.host, owner.ports.get("grpc", 0))


def advertised_address_of(owner: LiveOwner) -> str:
    """host:port of the owner's gRPC port, for clients."""
    return owner.advertised or address_of(owner)
