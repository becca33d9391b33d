"""Gives up what no storage node has any more of a ledger, or only lost ones, on an operator's command.

The command only changes the ledger's record: it names the members that are given up. The topic's owner, whose takeover
waits for them, reads the record again within seconds. It closes an open ledger without them, or passes over the entries
of a closed one that nobody has, and writes GivenUp into the log. The ledgers of a topic's ack log are ended in
the same way: messages that were acknowledged in what is given up may be delivered again.
"""

import logging
from collections.abc import Awaitable, Callable

from oncelog.core.access import NO_ROLE
from oncelog.core.errors import Conflict, LedgerNotFound
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.giving_up import members_to_give_up
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.repair.storage_nodes_reader import StorageSeen
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.runtime.observing.events import EventKind, EventRing

logger = logging.getLogger(__name__)


class LedgerEnd:
    def __init__(
        self,
        ledgers: LedgerStore,
        topics: TopicStore,
        *,
        look: Callable[[], Awaitable[StorageSeen]],
        is_served: Callable[[TopicRecord], Awaitable[bool]],
        events: EventRing,
    ) -> None:
        """look: at the storage nodes, and at what each lacks. is_served: whether the topic's owner acknowledges
        messages now. Raises a retriable error if it is unknown."""
        self._is_served = is_served
        self._events = events
        self._ledgers = ledgers
        self._topics = topics
        self._look = look

    async def end(self, ledger_id: LedgerId, *, by: str) -> LedgerMetadata:
        """Give up the members that are not registered; returns the ledger's record as it is then.

        Raises LedgerNotFound; Conflict if the ledger is in no topic's log, if nothing of it can be lost, if its topic
        is served.
        """
        while True:
            stored = await self._ledgers.read(ledger_id)
            if stored is None:
                raise LedgerNotFound(f"there is no ledger {ledger_id}", ledger_id=ledger_id)
            record = stored.value
            topic = await self._topic_of(record)
            seen = await self._look()
            lacking = {node for node, ledgers in seen.damaged.items() if ledger_id in ledgers}
            absent = members_to_give_up(record, seen.live, lacking)
            if await self._is_served(topic):
                raise Conflict(
                    f"ledger {ledger_id} cannot be ended: topic {topic.name} is served, so enough storage nodes "
                    "acknowledge its messages",
                    ledger_id=ledger_id,
                )
            closed = record.state is LedgerState.CLOSED
            give_up = record.give_up_entries if closed else record.give_up
            given_up = give_up(absent, by=by or NO_ROLE)
            written = await self._ledgers.write(given_up, version=stored.version)
            if written.status is WriteStatus.OK:
                lost = "acknowledgements" if ledger_id in topic.acks else "messages"
                self._events.note(
                    EventKind.COPY_LOST, logger, f"a ledger is ended: {lost} that only lost nodes hold are given up",
                    level="warning", topic=topic.name, ledger_id=ledger_id, closed=closed, by=by or NO_ROLE,
                    nodes=", ".join(absent or record.members),
                )  # fmt: skip
                return given_up
            # After a conflict or a lost response the next iteration finds out.

    async def _topic_of(self, record: LedgerMetadata) -> TopicRecord:
        """The topic whose log or ack log has this ledger: as the last one, unless it is closed. Raises Conflict."""
        topic = await self._topics.read(record.topic_id)
        closed = record.state is LedgerState.CLOSED
        if topic is not None:
            log = [link.ledger_id for link in topic.value.ledgers]
            if any(record.ledger_id in (chain if closed else chain[-1:]) for chain in (log, topic.value.acks)):
                return topic.value
        raise Conflict(
            f"ledger {record.ledger_id} is not {'in' if closed else 'the last ledger of'} a topic's log or ack log: "
            "it holds up no topic",
            ledger_id=record.ledger_id,
        )
