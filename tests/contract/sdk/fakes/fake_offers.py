"""Storage nodes of the fake cluster, for readers that its owner sends there: the same log, the same damage."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import accumulate

from oncelog.core.errors import PermissionDenied
from oncelog.core.ids import EntryId, Incarnation, TopicId
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.rpc.codecs.reader_codec import OfferedMember, OfferEnd, StorageOffer
from oncelog.rpc.codecs.storage_codec import READ, ReadFrame, ReadRequest
from oncelog.rpc.server import Server
from tests.contract.sdk.fakes.fake_topic import LEDGER, FakeTopic

TICKET = b"a ticket"
LIFETIME_MS = 60_000


class FakeMember:
    """A node with every entry. A topic's incarnation of it begins with the topic id, because all topics have the same
    ledger."""

    def __init__(self, topics: dict[TopicId, FakeTopic]) -> None:
        self._topics = topics
        self.address = ""
        self.reads: list[ReadRequest] = []
        self.entries_sent = 0
        #: entries that only this node lacks
        self.lacks: set[int] = set()
        #: entries from here on are gone with their ledger's copy
        self.erased_from: int | None = None
        #: what it does to the bytes of an entry
        self.spoil: Callable[[int, bytes], bytes] = lambda _, data: data

    async def read(self, request: ReadRequest) -> AsyncGenerator[ReadFrame, None]:
        self.reads.append(request)
        if request.ticket != TICKET:
            raise PermissionDenied("not this ticket")
        if self.erased_from is not None and request.first_entry >= self.erased_from:
            yield ReadFrame(ReadStatus.ERASED)
            return
        topic = self._topics[TopicId(request.target[:-1])]
        ids = range(request.first_entry, min(request.first_entry + request.entries_max, len(topic.entries)))
        sizes = accumulate(len(topic.entries[each][1]) for each in ids)
        ids = ids[: 1 + sum(size < request.bytes_max for size in sizes)]
        held = [EntryId(each) for each in ids if not topic.lacks(each) and each not in self.lacks]
        entries = [self.spoil(each, topic.entries[each][1]) for each in held]
        self.entries_sent += len(held)
        yield ReadFrame(ReadStatus.OK, held, [EntryId(each) for each in ids if each not in held], entries=entries)


class FakeMembers:
    """What the owner offers. lifetime_ms: of the tickets."""

    def __init__(self, members: list[FakeMember]) -> None:
        self.members = members
        self.addresses = [member.address for member in members]
        self.lifetime_ms = LIFETIME_MS
        #: what readers answered: (entry id, whether they take more offers)
        self.resumed: list[tuple[int, bool]] = []
        #: and why they read no further
        self.ends: list[OfferEnd] = []

    def offer(self, topic: FakeTopic, at: int, end: int) -> StorageOffer:
        """Entries at .. end - 1."""
        members = [
            OfferedMember(Incarnation(f"{topic.topic_id}{number}"), address, TICKET)
            for number, address in enumerate(self.addresses)
        ]
        return StorageOffer(LEDGER, EntryId(at), EntryId(end - 1), members, self.lifetime_ms)

    @classmethod
    @asynccontextmanager
    async def running(cls, topics: dict[TopicId, FakeTopic], count: int = 2) -> AsyncIterator["FakeMembers"]:
        members, servers = [FakeMember(topics) for _ in range(count)], [Server() for _ in range(count)]
        for member, server in zip(members, servers, strict=True):
            server.read(READ, member.read)
            member.address = f"127.0.0.1:{await server.start()}"
        try:
            yield cls(members)
        finally:
            for server in servers:
                await server.stop(grace_ms=0)
