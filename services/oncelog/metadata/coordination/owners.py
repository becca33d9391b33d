"""The topic owners as this replica sees them: who has a session, whose stream is open here, who is suspected.

Rules
- A session is what ZooKeeper shows; a stream is what this replica saw; only core.owner_suspicion joins the two into a
  suspicion (hazard 5). A connection is tried as soon as a stream closes, and again for a while: a process that is being
  killed may close its streams a moment before its listener.
- An address is tried as a number: a pod's name goes with the pod, or comes to mean another.
- Whoever listens at an owner's address under another incarnation has taken the port that the former process no longer
  holds: that is as good as a refused connection. (Addresses that are names may mean another host by then, which is one
  more reason for owners to tell numbers.)
- An owner that drains keeps what it has until that is moved, and gets nothing more. Neither does one without a stream
  here, as long as there is another: it may be dead, with a session that has not ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Protocol

from oncelog.core.address import join_address
from oncelog.core.coordination.owner_suspicion import (
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
from oncelog.core.coordination.placement import OwnersView
from oncelog.core.ids import Incarnation
from oncelog.metadata.coordination.owner_link import OwnerLink
from oncelog.rpc.reachability import Reachability, reach
from oncelog.stores.registry import LiveOwner, Registry

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_MS = 1_000
#: Whoever is there, or is known not to be, is heard within a few milliseconds.
PROBE_PATIENCE_MS = 100
#: Pauses before the attempts to connect to an owner whose stream has closed. In all longer than ZooKeeper, as it comes,
#: lets a session last, 40 s.
PROBE_PAUSES_MS = (0, 2, 5, 10, 20, 50, 100, 200, 500, *(1_000,) * 40)

Probe = Callable[[str], Awaitable[Reachability]]
Start = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class OwnerListener(Protocol):
    """Who acts on what becomes of owners."""

    def owner_lost(self, owner: Incarnation) -> None:
        """Its session has ended, or it is suspected: place its topics anew."""

    def owner_drains(self, owner: Incarnation) -> None:
        """It is about to stop: move its topics in good order."""


async def probe(address: str) -> Reachability:
    """Whether anything listens at `address`."""
    return await reach(address, timeout_ms=PROBE_TIMEOUT_MS)


class Owners:
    """`follow` runs as long as the process; the rest is called by streams and look-ups."""

    def __init__(self, registry: Registry, start: Start, *, probe: Probe = probe) -> None:
        self._registry = registry
        self._start = start
        self._probe = probe
        self._suspicion = OwnerSuspicion()
        self._live: dict[Incarnation, LiveOwner] = {}
        self._links: dict[Incarnation, OwnerLink] = {}
        self._numbers = count(1)
        self._changed = asyncio.Event()
        #: None before the process serves and once it stops: the end of its own streams says nothing of owners
        self.listener: OwnerListener | None = None

    # --- what is known ------------------------------------------------------------------------------------------------

    def find(self, owner: Incarnation) -> LiveOwner | None:
        """The record of an owner that has a session."""
        return self._live.get(owner)

    def link(self, owner: Incarnation) -> OwnerLink | None:
        """The open stream of an owner at this replica."""
        return self._links.get(owner)

    @property
    def live(self) -> list[LiveOwner]:
        return [self._live[owner] for owner in sorted(self._live)]

    @property
    def usable(self) -> list[LiveOwner]:
        """Those that take topics now."""
        return [owner for owner in self.live if not self.is_lost(owner.incarnation) and not self.drains(owner)]

    def is_lost(self, owner: Incarnation) -> bool:
        """Whether it has no session, or is suspected."""
        return owner not in self._live or owner in self._suspicion.suspected

    def drains(self, owner: LiveOwner) -> bool:
        link = self._links.get(owner.incarnation)
        return link is not None and link.draining

    def seen_for(self, owner: Incarnation | None) -> OwnersView:
        """The view for a decision about a topic of `owner`: of the others only those that may get one.

        Those that drain do not, nor do those whose stream is not open here, where there is another: one that died
        before this replica started still has a session, and is suspected by nobody.
        """
        others = [one.incarnation for one in self.live if one.incarnation != owner and not self.drains(one)]
        connected = [other for other in others if other in self._links]
        own = [owner] if owner is not None and owner in self._live else []
        return OwnersView((*own, *(connected or others)), self._suspicion.suspected)

    @property
    def change(self) -> asyncio.Event:
        """Set at the next change of anything here; take it before looking, so that no change is missed."""
        return self._changed

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Follow the sessions of the owners; never returns. Raises StoreUnavailable when our own was closed."""
        async for records in self._registry.owners.watch():
            self._see(records)

    async def refresh(self) -> None:
        """Read the sessions now: that one is missing in an older view proves nothing (hazard 2)."""
        self._see(await self._registry.owners.live())

    def _see(self, records: dict[str, LiveOwner]) -> None:
        before, self._live = self._live, {record.incarnation: record for record in records.values()}
        self._take(SessionsUpdated(tuple(sorted(self._live))))
        for owner in sorted(before.keys() - self._live.keys()):
            logger.info("the session of an owner has ended", extra={"fields": {"owner": owner}})
            if self.listener is not None:
                self.listener.owner_lost(owner)
        if before != self._live:
            self._tell_change()

    # --- streams ------------------------------------------------------------------------------------------------------

    def opened(self, owner: Incarnation, address: str, *, draining: bool) -> OwnerLink:
        """The stream of an owner is open."""
        link = OwnerLink(owner, address, next(self._numbers), probe_address=address)
        self._links[owner] = link
        self._take(StreamOpened(owner, link.number))
        for other in self._live.values():
            if other.incarnation != owner and address_of(other) == address:
                self._take(ConnectionRefused(other.incarnation))
        self.heard(link, draining=draining, topic_count=0)
        self._tell_change()
        return link

    def heard(self, link: OwnerLink, *, draining: bool, topic_count: int) -> None:
        """What an owner says of itself."""
        link.topic_count = topic_count
        if draining and not link.draining:
            link.draining = True
            logger.info("an owner drains", extra={"fields": {"owner": link.owner}})
            if self.listener is not None:
                self.listener.owner_drains(link.owner)
            self._tell_change()

    def closed(self, link: OwnerLink) -> None:
        """The stream is over, for whatever reason."""
        if self._links.get(link.owner) is link:
            del self._links[link.owner]
        if self.listener is not None:
            answered = link.heartbeats.answered_recently(int(asyncio.get_running_loop().time() * 1000))
            self._take(StreamClosed(link.owner, link.number, answered), address=link.probe_address)

    # --- suspicion ----------------------------------------------------------------------------------------------------

    def _take(self, event: SuspicionEvent, *, address: str = "") -> None:
        for effect in self._suspicion.handle(event):
            if isinstance(effect, ProbeOwner):
                self._start(self._probe_until_clear(effect, address))
                continue
            fields = {"owner": effect.owner, "heard": type(event).__name__}
            logger.warning(
                "an owner is gone: its stream closed, and nobody is at its address", extra={"fields": fields}
            )
            if self.listener is not None:
                self.listener.owner_lost(effect.owner)
            self._tell_change()

    async def _probe_until_clear(self, wanted: ProbeOwner, address: str) -> None:
        """Try to connect until that settles it, a stream is open again, or the session has ended.

        An attempt that waits is left to wait, beside the next one: what was sent while the address went away is never
        answered, and a second spent on it is a second of the takeover.
        """
        attempt: asyncio.Task[Reachability] | None = None
        async with asyncio.TaskGroup() as attempts:
            for pause_ms in PROBE_PAUSES_MS:
                await asyncio.sleep(pause_ms / 1000)
                if self.is_lost(wanted.owner) or wanted.owner in self._links:
                    return
                attempt = attempts.create_task(self._probe_once(wanted, address))
                await asyncio.wait({attempt}, timeout=PROBE_PATIENCE_MS / 1000)
        if attempt is not None and attempt.result() is Reachability.ACCEPTED:
            self._take(ConnectionAccepted(wanted.owner, wanted.stream))

    async def _probe_once(self, wanted: ProbeOwner, address: str) -> Reachability:
        answer = await self._probe(address)
        if answer is Reachability.REFUSED:
            self._take(ConnectionRefused(wanted.owner, wanted.stream))
        elif answer is Reachability.UNREACHABLE:
            self._take(HostUnreachable(wanted.owner, wanted.stream))
        return answer

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def address_of(owner: LiveOwner) -> str:
    """host:port of the owner's gRPC, for services."""
    return join_address(owner.host, owner.ports.get("grpc", 0))


def advertised_address_of(owner: LiveOwner) -> str:
    """host:port of the owner's gRPC, for clients."""
    return owner.advertised or address_of(owner)
