"""The requests to open that wait at an owner, and the grants in flight that answer them.

An instance that asks again for the same name takes the place of its former request: no instance waits twice, and a
repeat does not go to the end of the queue. An instance that does not name itself is another one with each request.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.errors import SessionEnded
from oncelog.core.formats.entry import ProducerOpened
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.ids import InstanceId
from oncelog.core.topic.log import InFlight


class Asker(NamedTuple):
    """Who asks for what. name None: the instance wants an assigned name."""

    instance_id: InstanceId
    name: str | None


def asker_of(event: ProducerOpening) -> Asker | None:
    """None: the instance does not name itself."""
    return Asker(event.instance_id, event.name) if event.instance_id else None


def superseded() -> SessionEnded:
    """The answer to a request whose place was taken by a newer one of its instance."""
    return SessionEnded("a newer request of the same producer instance took the place of this one: open again")


@dataclass(slots=True)
class Opening:
    """One instance's wish, until it is answered. asked, confirmed: as of a session, see `sessions.Session`.

    place: its number in the queue, which a repeat keeps. event: its newest request.
    """

    place: int
    event: ProducerOpening
    asked: bool = False
    confirmed: bool = False


class OpeningQueue:
    """Openings in the order in which their first requests came."""

    def __init__(self) -> None:
        #: {place: opening}
        self._openings: dict[int, Opening] = {}
        #: {call: place}, {asker: place}
        self._of_call: dict[int, int] = {}
        self._of_asker: dict[Asker, int] = {}
        self._next_place = 0

    def __len__(self) -> int:
        return len(self._openings)

    def __iter__(self) -> Iterator[Opening]:
        """The openings of now: the queue may change meanwhile."""
        return iter(list(self._openings.values()))

    def add(self, event: ProducerOpening) -> tuple[Opening, int | None]:
        """Take a request. Returns its opening, and the call of the former request whose place it took."""
        asker = asker_of(event)
        place = self._of_asker.get(asker) if asker is not None else None
        if place is None:
            place, self._next_place = self._next_place, self._next_place + 1
            opening, former = Opening(place, event), None
            self._openings[place] = opening
            if asker is not None:
                self._of_asker[asker] = place
        else:
            opening = self._openings[place]
            former = opening.event.call
            del self._of_call[former]
            # A read of the topic record that began before this request came says nothing to it.
            opening.event, opening.asked, opening.confirmed = event, False, False
        self._of_call[event.call] = place
        return opening, former

    def remove(self, call: int) -> Opening | None:
        """The opening whose newest request is `call`; None: it waits no more."""
        place = self._of_call.pop(call, None)
        if place is None:
            return None
        opening = self._openings.pop(place)
        asker = asker_of(opening.event)
        if asker is not None:
            del self._of_asker[asker]
        return opening

    def take_all(self) -> list[ProducerOpening]:
        """Every newest request, in order; the queue is empty afterwards."""
        events = [opening.event for opening in self._openings.values()]
        self._openings.clear()
        self._of_call.clear()
        self._of_asker.clear()
        return events


class GrantsInFlight:
    """Grants that are not durable yet, by the request that waits for each and by the instance that asked."""

    def __init__(self) -> None:
        #: {call: entry}
        self._of_call: dict[int, InFlight] = {}
        #: {asker: entry}
        self._of_asker: dict[Asker, InFlight] = {}

    def add(self, entry: InFlight, event: ProducerOpening) -> None:
        self._of_call[event.call] = entry
        asker = asker_of(event)
        if asker is not None:
            self._of_asker[asker] = entry

    def adopt(self, event: ProducerOpening) -> tuple[bool, int | None]:
        """Whether a grant to this instance is in flight, which `event` waits for from now on; and who did before."""
        asker = asker_of(event)
        entry = self._of_asker.get(asker) if asker is not None else None
        if entry is None or entry.grant is None or entry.grant.mode is not event.mode:
            return False, None
        former, entry.call = entry.call, event.call
        if former is not None:
            del self._of_call[former]
        self._of_call[event.call] = entry
        return True, former

    def abandon(self, call: int) -> None:
        """Nobody waits for the answer to `call` any more. The grant may become durable, and leaves no session."""
        entry = self._of_call.pop(call, None)
        if entry is not None:
            entry.call = None

    def settled(self, entry: InFlight, grant: ProducerOpened) -> None:
        """The grant is durable, or went with its ledger."""
        if entry.call is not None:
            self._of_call.pop(entry.call, None)
        for name in (grant.name, None):
            asker = Asker(grant.instance_id, name)
            if self._of_asker.get(asker) is entry:
                del self._of_asker[asker]
