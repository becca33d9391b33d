"""The requests to open that wait at an owner, and the grants in flight that answer them.

A repeated request of an instance for the same name replaces the earlier one and keeps its place in the queue. Requests
without an instance id are all different instances.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.errors import SessionEnded
from oncelog.core.formats.entry import ProducerOpened
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.ids import InstanceId, SessionNumber
from oncelog.core.publishing.log import InFlight


class Requester(NamedTuple):
    """The instance, and the name that it requests; None: an assigned name."""

    instance_id: InstanceId
    name: str | None


def requester_of(event: ProducerOpening) -> Requester | None:
    """None: the request has no instance id."""
    return Requester(event.instance_id, event.name) if event.instance_id else None


def superseded() -> SessionEnded:
    """The answer to a request that a newer one of its instance has replaced."""
    return SessionEnded("a newer request of the same producer instance replaced this one: open again")


class HolderNews(NamedTuple):
    """What is known of the client of a gateway that has this session. lives: its gateway says that it is there; False:
    the gateway has said nothing in time."""

    session: SessionNumber
    lives: bool


@dataclass(slots=True)
class Opening:
    """A request that waits. read_begun, confirmed: as of a session, see `sessions.TopicSession`.

    place: its number in the queue, which a repeat keeps. event: the newest request of the instance. holder: what
    this request has learnt about the client that holds its name.
    """

    place: int
    event: ProducerOpening
    read_begun: bool = False
    confirmed: bool = False
    holder: HolderNews | None = None


class OpeningQueue:
    """Requests in the order in which their first versions came."""

    def __init__(self) -> None:
        #: {place: opening}
        self._openings: dict[int, Opening] = {}
        #: {call: place}, {requester: place}
        self._of_call: dict[int, int] = {}
        self._of_requester: dict[Requester, int] = {}
        self._next_place = 0

    def __len__(self) -> int:
        return len(self._openings)

    def __iter__(self) -> Iterator[Opening]:
        """Iterates over a copy: the queue may change meanwhile."""
        return iter(list(self._openings.values()))

    def add(self, event: ProducerOpening) -> tuple[Opening, int | None]:
        """Take a request. Returns its opening, and the call of the request that it replaced."""
        requester = requester_of(event)
        place = self._of_requester.get(requester) if requester is not None else None
        if place is None:
            place, self._next_place = self._next_place, self._next_place + 1
            opening, former = Opening(place, event), None
            self._openings[place] = opening
            if requester is not None:
                self._of_requester[requester] = place
        else:
            opening = self._openings[place]
            former = opening.event.call
            del self._of_call[former]
            # A read of the topic record that began before this request proves nothing for it.
            opening.event, opening.read_begun, opening.confirmed, opening.holder = event, False, False, None
        self._of_call[event.call] = place
        return opening, former

    def remove(self, call: int) -> Opening | None:
        """Remove the opening whose newest request is `call`. None: it no longer waits."""
        place = self._of_call.pop(call, None)
        if place is None:
            return None
        opening = self._openings.pop(place)
        requester = requester_of(opening.event)
        if requester is not None:
            del self._of_requester[requester]
        return opening

    def take_all(self) -> list[ProducerOpening]:
        """Remove and return the newest request of every opening, in order."""
        events = [opening.event for opening in self._openings.values()]
        self._openings.clear()
        self._of_call.clear()
        self._of_requester.clear()
        return events


class GrantsInFlight:
    """Grants that are not durable yet, by the request that waits for each, and by its instance."""

    def __init__(self) -> None:
        #: {call: entry}
        self._of_call: dict[int, InFlight] = {}
        #: {requester: entry}
        self._of_requester: dict[Requester, InFlight] = {}
        #: those of new producers
        self.new_count = 0

    def add(self, entry: InFlight, event: ProducerOpening) -> None:
        self.new_count += entry.grant is not None and entry.grant.generation == 1
        self._of_call[event.call] = entry
        requester = requester_of(event)
        if requester is not None:
            self._of_requester[requester] = entry

    def adopt(self, event: ProducerOpening) -> tuple[bool, int | None]:
        """Whether a grant to this instance is in flight, which now answers `event`; and the call that it replaces."""
        requester = requester_of(event)
        entry = self._of_requester.get(requester) if requester is not None else None
        if entry is None or entry.grant is None or entry.grant.mode is not event.mode:
            return False, None
        former, entry.call, entry.peer, entry.client = entry.call, event.call, event.peer, event.client
        if former is not None:
            del self._of_call[former]
        self._of_call[event.call] = entry
        return True, former

    def abandon(self, call: int) -> None:
        """The request `call` was withdrawn. The grant may still become durable, but opens no session."""
        entry = self._of_call.pop(call, None)
        if entry is not None:
            entry.call = None

    def renewing(self, entry: InFlight, call: int) -> None:
        """A renewal that answers `call` is in flight."""
        self._of_call[call] = entry

    def renewed(self, entry: InFlight) -> None:
        """It is durable, or was dropped with its ledger."""
        if entry.call is not None:
            self._of_call.pop(entry.call, None)

    def settled(self, entry: InFlight, grant: ProducerOpened) -> None:
        """The grant is durable, or was dropped with its ledger."""
        self.new_count -= grant.generation == 1
        if entry.call is not None:
            self._of_call.pop(entry.call, None)
        for name in (grant.name, None):
            requester = Requester(grant.instance_id, name)
            if self._of_requester.get(requester) is entry:
                del self._of_requester[requester]
