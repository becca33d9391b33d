"""Openings of gateways' clients that come back: an owner answers them only once it is proved to be the current one, as
`PublishService` does it. The answer says the last sequence id, and no entry is written that would prove the owner."""

import random
from typing import TYPE_CHECKING

from oncelog.core.errors import NotOwner
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.topic_events.effects import AnswerOpen
from tests.simulation.servers.owners.ownership_proofs import FENCES_TICKS, Asked, Paths

if TYPE_CHECKING:
    from tests.simulation.servers.owners.owner_server import ClientLink, OwnerServer

#: A proof that takes longer is given up.
_PROOF_TICKS = 4 * FENCES_TICKS


class ProvedOpenings:
    """Of one life of an owner."""

    def __init__(self, owner: "OwnerServer") -> None:
        self._owner = owner
        self._rng = random.Random(f"{owner.world.seed}/{owner.incarnation} openings")
        #: (stream, number of the request) of those that wait for a proof
        self._waiting: set[tuple[ClientLink, int]] = set()

    def open(self, link: "ClientLink", topic_id: TopicId, opening: ProducerOpening) -> None:
        owner, key = self._owner, (link, opening.call)
        self._waiting.add(key)

        def refuse() -> None:
            if key in self._waiting:
                self._waiting.discard(key)
                link.opened(AnswerOpen(opening.call, NotOwner("not proved")), OwnerEpoch(0))

        def proved() -> None:
            shell = owner.topics.get(topic_id)
            if key in self._waiting and shell is not None:
                self._waiting.discard(key)
                shell.open(link, opening)
            else:
                refuse()

        paths = Paths(owner.parts.network, owner.parts.nodes, topic_id, self._rng)
        asked = Asked(paths, owner, opening.owner_epoch_seen, lambda *_: proved(), refuse)
        owner.post(_PROOF_TICKS, "gives a proof up", lambda: None if asked.over else asked.give_up())
        asked.begin()

    def withdraw(self, link: "ClientLink", call: int) -> None:
        self._waiting.discard((link, call))

    def link_broken(self, link: "ClientLink") -> None:
        self._waiting = {each for each in self._waiting if each[0] is not link}
