"""A small world for recoveries: three storage nodes and one ledger record, all of them correct, driven step by step."""

import random
import zlib

from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.ledger.recovery import (
    FenceMember,
    LedgerRecovered,
    LedgerRecovery,
    RecoveryAdd,
    RecoveryEffect,
    RecoveryEvent,
    RecoveryFailed,
    RecoveryRead,
)
from oncelog.core.records.records import ReadRecord, RecordRead, WriteRecord
from oncelog.core.records.status import WriteStatus
from tests.core.ledger import correct_members

TOPIC = TopicId("0f" * 16)
LEDGER = LedgerId(7)
KEY = LedgerKey(LEDGER)
A, B, C = Incarnation("a"), Incarnation("b"), Incarnation("c")
OPEN = LedgerMetadata(LEDGER, TOPIC, (A, B, C), 2)


def checksum(data: Buffer, value: int) -> int:
    """CRC32 instead of CRC32C: the cores take any."""
    return zlib.crc32(data, value)


def entry(
    entry_id: int, *, last_add_confirmed: int = -1, ledger_id: LedgerId = LEDGER, body: bytes = b"0123456789",
    topic_id: TopicId = TOPIC,
) -> bytes:  # fmt: skip
    """One valid entry of ten bytes a body, so that the cumulative length is ten per entry."""
    header = EntryHeader(
        kind=EntryKind.MESSAGES,
        ledger_id=ledger_id,
        entry_id=EntryId(entry_id),
        last_add_confirmed=EntryId(last_add_confirmed),
        length=10 * (entry_id + 1),
        owner_epoch=OwnerEpoch(1),
        append_time_ms=0,
        base_index=entry_id,
        skip_first=0,
        count=1,
        body_bytes=len(body),
        topic_id=topic_id,
    )
    return encode_header(header, body, checksum) + body


class World:
    """The nodes' entries and the ledger record. `perform` does one effect and returns its completion."""

    def __init__(self, copies: dict[Incarnation, dict[int, bytes]], record: LedgerMetadata | None = OPEN) -> None:
        self.copies: dict[Incarnation, dict[int, bytes]] = {
            member: dict(copies.get(member, {})) for member in (A, B, C)
        }
        self.record = record
        self.version = 0
        self.fenced: set[Incarnation] = set()
        #: ids that a member holds in damaged form
        self.damaged: dict[Incarnation, set[int]] = {A: set(), B: set(), C: set()}
        #: a read is answered with at most so many entries
        self.answer_entries_max = 1000
        self.outcomes: list[LedgerRecovered | RecoveryFailed] = []

    def perform(self, effect: RecoveryEffect) -> RecoveryEvent | None:
        match effect:
            case ReadRecord():
                return RecordRead(KEY, self.record, self.version)
            case WriteRecord():
                if self.record is None or effect.version != self.version:
                    return effect.answered(WriteStatus.CONFLICT)
                self.record, self.version = effect.value, self.version + 1
                return effect.answered(WriteStatus.OK, self.version)
            case FenceMember():
                self.fenced.add(effect.member)
                return correct_members.fenced(effect, self.copies[effect.member])
            case RecoveryRead():
                self.fenced.add(effect.member)
                held, damaged = self.copies[effect.member], self.damaged[effect.member]
                return correct_members.read(effect, held, damaged, entries_max=self.answer_entries_max)
            case RecoveryAdd():
                return correct_members.added(effect, self.copies[effect.member])
            case LedgerRecovered() | RecoveryFailed():
                self.outcomes.append(effect)
                return None


class Run:
    """One recovery in a world: its open effects in order; any of them can be done next, late or never."""

    def __init__(self, world: World, *, range_entries: int = 4) -> None:
        self.world = world
        self.core = LedgerRecovery(LEDGER, checksum, range_entries=range_entries)
        self.open: list[RecoveryEffect] = list(self.core.start())

    def step(self, index: int = 0) -> None:
        completion = self.world.perform(self.open.pop(index))
        if completion is not None:
            self.deliver(completion)

    def deliver(self, completion: RecoveryEvent) -> list[RecoveryEffect]:
        effects = self.core.handle(completion)
        self.core.check_invariants()
        self.open += effects
        return effects

    def deliver_look(self) -> list[RecoveryEffect]:
        """Nobody answers: the recovery looks at the record."""
        effects = self.core.look()
        self.open += effects
        return effects

    def finish(self, *, hung: Incarnation | None = None, rng: random.Random | None = None) -> "Run":
        """Do open effects, in order or at random, until none is left. Requests to a hung member stay open for ever."""
        while ready := [
            i for i, effect in enumerate(self.open) if getattr(effect, "member", None) != hung or hung is None
        ]:
            self.step(ready[0] if rng is None else rng.choice(ready))
        return self


def check_log(world: World) -> LedgerMetadata:
    """The world's final record, checked: CLOSED, and every entry of the log held by at least two members, verbatim."""
    record = world.record
    assert record is not None
    assert record.state.value == "CLOSED"
    for number in range(record.end + 1):
        held = [world.copies[m][number] for m in (A, B, C) if number in world.copies[m]]
        assert len(held) >= 2
        assert len(set(held)) == 1
    assert record.length == 10 * (record.end + 1)
    return record
