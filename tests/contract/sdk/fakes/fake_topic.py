"""A topic of the fake cluster: one log in one ledger, durable at once, with the real dedup over it."""

import asyncio
from uuid import uuid4

from crc32c import crc32c

from oncelog.client.values.messages import MessageBatch, open_entry
from oncelog.client.values.results import TopicPartition
from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.errors import (
    EntriesLost,
    OncelogError,
)
from oncelog.core.formats.batch import decode_batch, deltas_of
from oncelog.core.formats.entry import (
    GIVEN_UP_INDEXES,
    EntryHeader,
    EntryKind,
    GivenUp,
    ProducerOpened,
    encode_given_up,
    encode_header,
    encode_opened,
)
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange
from oncelog.core.ids import (
    NO_ENTRY,
    EntryId,
    Generation,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    TopicId,
)
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.dedup_table import Accept, DedupTable, NothingNew, Refused
from oncelog.core.publishing.repeated_content import with_content
from oncelog.rpc.codecs.owner_codec import (
    OpenRequest,
)
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime

LEDGER = LedgerId(3)


class FakeTopic:
    """One log in one ledger, and the marks that are its fold."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = TopicId(uuid4().hex)
        self.table = DedupTable(DedupState())
        #: what the ack log holds
        self.ack_state = SubscriptionsState()
        #: (header, the whole entry)
        self.entries: list[tuple[EntryHeader, bytes]] = []
        #: indexes of entries whose every copy is damaged
        self.unreadable: set[int] = set()
        #: indexes of entries whose every copy is away, or proved lost
        self.away: set[int] = set()
        self.lost: range = range(0)
        #: one of them that a search for a number meets first
        self.search_meets: int | None = None
        #: to be set when the log has grown
        self.readers: list[asyncio.Event] = []
        #: told to readers
        self.trimmed_below = 0
        self.now_ms = 1_000

    def header(self, kind: EntryKind, body: bytes | memoryview, *, skip_first: int = 0, count: int = 0) -> EntryHeader:
        return EntryHeader(
            kind, LEDGER, EntryId(len(self.entries)), NO_ENTRY, 0, OwnerEpoch(1), self.now_ms,
            self.table.state.next_index, skip_first, count, len(body), self.topic_id,
        )  # fmt: skip

    def append(self, header: EntryHeader, body: bytes | memoryview) -> None:
        self.entries.append((header, encode_header(header, body, crc32c) + body))
        self.now_ms += 1_000
        readers, self.readers = self.readers, []
        for news in readers:
            news.set()

    def grant(self, request: OpenRequest, producer_id: ProducerId) -> tuple[str, ProducerId, Generation]:
        name = request.producer_name or f"assigned-{producer_id}"
        known = self.table.producer_id_of(name)
        generation = Generation(1) if known is None else Generation(self.table.generation_of(known)[0] + 1)
        producer_id = known or producer_id
        mark = request.initial_mark if known is None else self.table.accepted_of(known)
        growths = request.growths if known is None else self.table.state.producers[known].growths
        grant = ProducerOpened(self.topic_id, name, producer_id, generation, request.mode, mark, growths=growths)
        body = encode_opened(grant)
        header = self.header(EntryKind.PRODUCER_OPENED, body)
        self.table.granting(grant, position=header.position)
        self.append(header, body)
        self.table.persisted_grant(header, grant)
        return name, producer_id, generation

    def give_up(self) -> None:
        """As an operator's command to end a ledger does it."""
        body = encode_given_up(GivenUp(LEDGER, EntryId(len(self.entries)), "ann"))
        header = self.header(EntryKind.GIVEN_UP, body, count=GIVEN_UP_INDEXES)
        self.append(header, body)
        self.table.state.fold_given_up(header)

    def publish(self, data: memoryview) -> Outcome | OncelogError:
        batch = decode_batch(data, crc32c)
        deltas = deltas_of(batch, data)
        verdict = self.table.check(batch, deltas)
        if isinstance(verdict, NothingNew):
            return with_content(verdict.known, self.table, batch, data, crc32c)
        if isinstance(verdict, Refused):
            return verdict.error
        assert isinstance(verdict, Accept), "everything in this log is durable at once"
        header = self.header(
            EntryKind.MESSAGES, data, skip_first=verdict.skip_first, count=batch.count - verdict.skip_first
        )
        self.table.accepted(batch, deltas, position=header.position, skip_first=verdict.skip_first)
        self.append(header, data)
        self.table.persisted_batch(header, batch, deltas)
        stored = ResultRange(
            ResultKind.STORED, header.count, header.position, verdict.skip_first, index=header.base_index
        )
        return (*verdict.known, stored)

    def lacks(self, at: int) -> bool:
        """Whether no copy of this entry can be read now."""
        return at in self.unreadable or at in self.away or at in self.lost

    def values(self) -> list[bytes]:
        """Everything stored, as a reader would see it."""
        place = TopicPartition(self.topic_id, -1)
        batches = [
            MessageBatch(open_entry(data, crc32c), place, None, first_batch_index=0)
            for header, data in self.entries
            if header.kind == EntryKind.MESSAGES
        ]
        return [bytes(value) for batch in batches for value in batch.values]


def start_of(topic: FakeTopic, at: StartAt) -> tuple[int, int]:
    match at:
        case StartEdge.EARLIEST:
            return 0, 0
        case StartEdge.LATEST:
            return len(topic.entries), 0
        case StartMessage(position, batch_index, inclusive):
            if position.ledger_id != LEDGER:
                following = Position(LEDGER, EntryId(len(topic.entries) if position.ledger_id > LEDGER else 0))
                raise EntriesLost(
                    f"entry {position} is lost", ledger_id=position.ledger_id, first=position.entry_id,
                    last=position.entry_id, next_ledger_id=following.ledger_id, next_entry_id=following.entry_id,
                )  # fmt: skip
            return position.entry_id, batch_index + (0 if inclusive else 1)
        case StartTime(time_ms):
            late = [i for i, (header, _) in enumerate(topic.entries) if header.append_time_ms >= time_ms]
            return (late or [len(topic.entries)])[0], 0
        case StartIndex(number):
            for i, (header, _) in enumerate(topic.entries):
                if header.next_index > number:
                    return i, header.skip_first + max(0, number - header.base_index)
            return len(topic.entries), 0
