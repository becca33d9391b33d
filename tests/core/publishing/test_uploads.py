"""Messages in chunks at their owner: one message or none, whatever ends between two chunks."""

from collections.abc import Sequence

import pytest

from oncelog.core.errors import InvalidBatch, MessageTooLarge, OncelogError, SessionEnded
from oncelog.core.formats.batch import PayloadFormat, decode_batch, encode_batch
from oncelog.core.formats.batch_check import BatchLimits, check_batch
from oncelog.core.formats.chunks import ChunkName, ChunkNames, encode_chunk, encode_chunk_names
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.opening import Granted, ProducerInstance
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import EntryId, Generation, LedgerId, Position, ProducerId, SequenceId
from oncelog.core.publishing.uploads import HOLD_MS_MAX, IDLE_MS
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic_events.effects import ChunksOrphaned, EndSession
from oncelog.core.topic_events.events import ReceivedBatch, SessionClosed
from tests.core.builders import CONTIGUOUS, checksum, received
from tests.core.chunked_log import whole_messages
from tests.core.topic.topic_world import SETTINGS, Owner, World

INSTANCE = ProducerInstance(ProducerId(1), Generation(1))
PARTS = [b"first ", b"second ", b"third"]


def serving(settings: TopicSettings = SETTINGS) -> tuple[World, Owner]:
    world = World()
    return world, Owner(world, "o1", settings).take_over()


def plain(request: int, sequence: int) -> ReceivedBatch:
    return received(request, [sequence], payload=encode_values([b"x"]))


def batch_of(
    payload: bytes, form: PayloadFormat, instance: ProducerInstance = INSTANCE, sequence: int = 0, last: int = -1,
    compression: int = 0,
) -> bytes:  # fmt: skip
    last = max(last, sequence)
    return encode_batch(
        payload, producer_id=instance.producer_id, generation=instance.generation, first=sequence, last=last,
        count=last - sequence + 1, publish_time_ms=1, checksum=checksum, payload_format=form, compression=compression,
    )  # fmt: skip


def packed(request: int, granted: Granted, payload: bytes, form: PayloadFormat, sequence: int) -> ReceivedBatch:
    data = batch_of(payload, form, granted.instance, sequence)
    return ReceivedBatch(request, check_batch(data, checksum, BatchLimits(1 << 20)), data)


def chunk(request: int, granted: Granted, number: int, *, sequence: int = 0) -> ReceivedBatch:
    payload = encode_chunk(sum(map(len, PARTS[:number])), PARTS[number])
    return packed(request, granted, payload, PayloadFormat.CHUNK, sequence)


def final(request: int, granted: Granted, names: ChunkNames, *, sequence: int = 0) -> ReceivedBatch:
    payload = encode_values([b""]) + encode_chunk_names(names)
    return packed(request, granted, payload, PayloadFormat.CHUNKED, sequence)


def outcome(owner: Owner, request: int) -> ResultRange:
    result = owner.result(request)
    assert not isinstance(result, OncelogError), result
    assert isinstance(result, tuple)
    assert len(result) == 1
    assert isinstance(result[0], ResultRange)
    return result[0]


def upload(owner: Owner, granted: Granted, *, first_request: int = 1, sequence: int = 0) -> ChunkNames:
    """Send all chunks, one by one; what the message has to name."""
    names: list[ChunkName] = []
    ledger_id = LedgerId(0)
    for number in range(len(PARTS)):
        sent = chunk(first_request + number, granted, number, sequence=sequence)
        owner.send(granted.session, sent)
        owner.run()
        written = outcome(owner, first_request + number)
        assert written.kind is ResultKind.CHUNK
        assert written.position is not None
        ledger_id = written.position.ledger_id
        names.append(ChunkName(written.position.entry_id, sent.header.checksum))
    return ChunkNames(ledger_id, sum(map(len, PARTS)), tuple(names))


def messages(world: World) -> list[Position]:
    """Where the log's messages are; each is whole."""
    return [position for position, _ in whole_messages(world)]


def test_chunks_and_their_message_are_one_message() -> None:
    """The chunks take no index and move no mark; the message does both, once."""
    world, owner = serving()
    granted = owner.open()
    names = upload(owner, granted)
    assert messages(world) == []
    assert world.folded().next_index == 0
    owner.send(granted.session, final(4, granted, names), plain(5, 1))
    owner.run()
    stored = outcome(owner, 4)
    assert (stored.kind, stored.count) == (ResultKind.STORED, 1)
    assert outcome(owner, 5).kind is ResultKind.STORED
    assert messages(world)[0] == stored.position
    assert world.folded().next_index == 2
    assert owner.emitted(ChunksOrphaned) == []


def test_retry_of_a_stored_message_sends_one_chunk() -> None:
    """Its first chunk is answered as the duplicate that the message is, with the position of the message."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, final(4, granted, upload(owner, granted)))
    owner.run()
    held = len(world.entries_of(LedgerId(1)))
    again = owner.open()
    owner.send(again.session, chunk(11, again, 0), chunk(12, again, 1))
    owner.run()
    position = outcome(owner, 4).position
    assert outcome(owner, 11) == outcome(owner, 12) == ResultRange(ResultKind.DUPLICATE, 1, position, 0, None)
    assert len(world.entries_of(LedgerId(1))) == held + 1, "the grant"
    assert owner.core.serving is not None
    sessions = owner.core.serving.sessions
    assert sessions.counters["duplicate"] == 1, "one message, not one for each chunk"
    assert sessions.refusals.of(granted.instance.producer_id, SequenceId(0)).counts == {"duplicate": 1}


def test_contiguous_producer_sends_chunks() -> None:
    """All chunks have the id of their message."""
    _, owner = serving()
    granted = owner.open(mode=CONTIGUOUS)
    owner.send(granted.session, plain(9, 0))
    names = upload(owner, granted, sequence=1)
    owner.send(granted.session, final(4, granted, names, sequence=1), plain(10, 2))
    owner.run()
    assert [outcome(owner, request).kind for request in (9, 4, 10)] == [ResultKind.STORED] * 3


@pytest.mark.parametrize("done", range(len(PARTS) + 1))
@pytest.mark.parametrize("end", ["takeover", "roll", "disconnect", "fenced"])
def test_what_ends_between_two_chunks_leaves_no_message(end: str, done: int) -> None:
    """Then everything is sent again, and is one message."""
    world, owner = serving()
    granted = owner.open()
    for number in range(done):
        owner.send(granted.session, chunk(1 + number, granted, number))
        owner.run()
    names = ChunkNames(
        LedgerId(1), sum(map(len, PARTS)),
        tuple(ChunkName(EntryId(1 + n), chunk(0, granted, n).header.checksum) for n in range(len(PARTS))),
    )  # fmt: skip
    following = final(9, granted, names) if done == len(PARTS) else chunk(9, granted, done)
    if end == "takeover":
        owner = Owner(world, "successor").take_over()
    elif end == "disconnect":
        owner.handle(SessionClosed(granted.session))
    elif end == "fenced":
        owner.open()
        owner.send(granted.session, following)  # of a session that is over
        owner.run()
        assert [type(effect.error).__name__ for effect in owner.emitted(EndSession)] == ["ProducerFenced"]
    else:
        owner.roll()
        owner.run()
        owner.send(granted.session, following)
        owner.run()
        if done:
            assert isinstance(owner.result(9), SessionEnded)
    assert messages(world) == []
    again = owner.open()
    owner.send(again.session, final(24, again, upload(owner, again, first_request=21)))
    owner.run()
    assert messages(world) == [outcome(owner, 24).position]
    if end != "takeover" and done:
        # Those of a takeover are known to the former owner only.
        assert sum(effect.chunks for effect in owner.emitted(ChunksOrphaned)) == done


def test_message_may_name_only_its_own_chunks() -> None:
    """Whatever else it names, nothing of it is stored, and the session ends."""
    for lie in range(7):
        world, owner = serving()
        other = owner.open("other")
        foreign = upload(owner, other, first_request=31)
        granted = owner.open()
        names = upload(owner, granted)
        first, second, third = names.chunks
        lies = [
            names._replace(chunks=(first, second)),
            names._replace(chunks=(first, second, third, ChunkName(EntryId(9), 1))),
            names._replace(chunks=(first, second, third._replace(checksum=7))),
            names._replace(value_bytes=names.value_bytes + 1),
            names._replace(ledger_id=LedgerId(7)),
            names._replace(chunks=(first, second, third._replace(entry_id=EntryId(99)))),
            foreign,
        ]
        owner.send(granted.session, final(4, granted, lies[lie]), plain(5, 1))
        owner.run()
        assert isinstance(owner.result(4), InvalidBatch), lie
        assert messages(world) == []
        assert owner.core.serving is not None
        assert granted.session not in owner.core.serving.sessions.open_sessions
        assert not any(answer.request == 5 for answer in owner.batches), "nothing overtakes a refused message"


def test_chunks_out_of_order_begin_anew() -> None:
    """A chunk that is missing, repeated, or of another message loses the upload, and never makes one of two."""
    for wrong, sequence in ((2, 0), (0, 1), (1, 1)):
        world, owner = serving()
        granted = owner.open()
        owner.send(granted.session, chunk(1, granted, 0))
        owner.send(granted.session, chunk(2, granted, wrong, sequence=sequence))
        owner.run()
        if wrong:
            assert isinstance(owner.result(2), SessionEnded)
        else:
            assert outcome(owner, 2).kind is ResultKind.CHUNK
            assert owner.emitted(ChunksOrphaned) == [ChunksOrphaned(1, len(PARTS[0]))]
        assert messages(world) == []


def test_due_roll_waits_for_begun_uploads_and_first_chunks_for_the_roll() -> None:
    """Otherwise uploads longer than a ledger would lose each other for ever."""
    world, owner = serving(TopicSettings(ledger_entries_max=3))
    one, two = owner.open("one"), owner.open("two")
    for number in (0, 1):
        owner.send(one.session, chunk(1 + number, one, number))
        owner.run()
    owner.send(two.session, chunk(11, two, 0))
    owner.run()
    assert not any(answer.request == 11 for answer in owner.batches), "it waits for the next ledger"
    assert len(world.links) == 1, "the ledger is at its limit, and stays for the upload"
    owner.send(one.session, chunk(3, one, 2))
    owner.run()
    names = ChunkNames(
        LedgerId(1), sum(map(len, PARTS)),
        tuple(ChunkName(EntryId(3 + n), chunk(0, one, n).header.checksum) for n in range(3)),
    )  # fmt: skip
    owner.send(one.session, final(4, one, names))
    owner.run()
    assert outcome(owner, 4).kind is ResultKind.STORED
    written = outcome(owner, 11)
    assert written.position is not None
    assert written.position.ledger_id > LedgerId(1)


@pytest.mark.parametrize("pauses", [[IDLE_MS], [IDLE_MS - 1] * (HOLD_MS_MAX // (IDLE_MS - 1) + 1)])
def test_stalled_upload_holds_no_ledger_for_ever(pauses: Sequence[int]) -> None:
    """A client that sends nothing more, or a byte now and then, would keep its ledger from repair."""
    world, owner = serving(TopicSettings(ledger_entries_max=2))
    granted = owner.open()
    owner.send(granted.session, chunk(1, granted, 0))
    owner.run()
    assert len(world.links) == 1
    size = len(PARTS[0])
    for number, pause_ms in enumerate(pauses):
        owner.tick(pause_ms).run()
        if len(world.links) > 1:
            break
        slow = packed(2 + number, granted, encode_chunk(size + number, b"."), PayloadFormat.CHUNK, 0)
        owner.send(granted.session, slow)
        owner.run()
    assert len(world.links) == 2
    assert owner.now_ms >= min(sum(pauses), HOLD_MS_MAX)


@pytest.mark.parametrize(
    ("payload", "form", "says"),
    [
        (b"", PayloadFormat.CHUNK, "no bytes"),
        (bytes(8), PayloadFormat.CHUNK, "no bytes"),
        (encode_chunk(1 << 30, b"."), PayloadFormat.CHUNK, "beyond the largest value"),
        (encode_chunk(2**64 - 1, b"."), PayloadFormat.CHUNK, "beyond the largest value"),
        (encode_values([b""]), PayloadFormat.CHUNKED, "does not name them"),
        (encode_values([b"x"]) + encode_chunk_names(ChunkNames(LedgerId(1), 1, (ChunkName(EntryId(1), 1),))),
         PayloadFormat.CHUNKED, "a value besides them"),
        (encode_values([b"x"]) + encode_chunk_names(ChunkNames(LedgerId(1), 1, (ChunkName(EntryId(1), 1),))),
         PayloadFormat.COLUMNS, "only a message in chunks"),
        (encode_values([b""]) + encode_chunk_names(ChunkNames(LedgerId(1), 0, ())), PayloadFormat.CHUNKED, "0 chunks"),
        (encode_values([b""]) + encode_chunk_names(ChunkNames(LedgerId(1), 0, (ChunkName(EntryId(1), 1),))),
         PayloadFormat.CHUNKED, "a value of 0 bytes"),
        (encode_values([b""]) + encode_chunk_names(ChunkNames(LedgerId(1), 2**40, (ChunkName(EntryId(1), 1),))),
         PayloadFormat.CHUNKED, "or the limit"),
        (encode_values([b""]) + encode_chunk_names(
            ChunkNames(LedgerId(1), 9, (ChunkName(EntryId(2), 1), ChunkName(EntryId(2), 1)))),
         PayloadFormat.CHUNKED, "do not ascend"),
        (encode_values([b""]) + encode_chunk_names(
            ChunkNames(LedgerId(1), 5000, tuple(ChunkName(EntryId(n), 1) for n in range(5000)))),
         PayloadFormat.CHUNKED, "5000 chunks"),
        (encode_values([b""]) + encode_chunk_names(
            ChunkNames(LedgerId(1), 9, (ChunkName(EntryId(2), 1),)))[:-1] + b"",
         PayloadFormat.CHUNKED, "more bytes than the payload"),
    ],
)  # fmt: skip
def test_lying_chunks_are_refused_at_the_edge(payload: bytes, form: PayloadFormat, says: str) -> None:
    """The bytes of a producer are not trusted."""
    with pytest.raises(InvalidBatch, match=says):
        check_batch(batch_of(payload, form), checksum, BatchLimits(1 << 20))


def test_chunk_is_one_message_uncompressed_and_within_the_limit() -> None:
    """What a batch of several messages or a compressed one would be as a chunk is not defined."""
    several = batch_of(encode_chunk(0, b"x"), PayloadFormat.CHUNK, last=1)
    compressed = batch_of(encode_chunk(0, b"x"), PayloadFormat.CHUNK, compression=1)
    for data in (several, compressed):
        with pytest.raises(InvalidBatch, match="a batch of its own"):
            decode_batch(data, checksum)
    with pytest.raises(MessageTooLarge):
        check_batch(batch_of(encode_chunk(0, bytes(101)), PayloadFormat.CHUNK), checksum, BatchLimits(100))
