"""Heads of ledgers: what each says of its chain, so that the lists can be rebuilt from the storage nodes alone."""

from collections import deque

import pytest

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.chain.next_ledger import DeleteLedgers
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.head import LedgerHead, decode_head
from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.records.records import TopicKey, kind_of
from oncelog.core.topic_events.effects import Served
from oncelog.core.topic_events.events import DrainRequested, TopicAssigned
from tests.core.builders import A, B, C, fold, received
from tests.core.topic.test_topic_subscriptions import Consuming
from tests.core.topic.topic_world import WRITE_LEDGER, WRITE_TOPIC, Owner, World


def entries_of(world: World, ledger_id: LedgerId) -> list[bytes]:
    """As recovery keeps them: up to the end of a CLOSED ledger."""
    metadata, _ = world.ledgers[ledger_id]
    held = world.entries_of(ledger_id)
    end = metadata.end if metadata.state is LedgerState.CLOSED else max(held, default=-1)
    return [held[number] for number in range(end + 1)]


def head_of(entries: list[bytes], kind: EntryKind) -> LedgerHead:
    kinds = [peek_header(data).kind for data in entries]
    assert (kinds[0], kinds.count(kind)) == (kind, 1), kinds
    return decode_head(body_of(entries[0]))


def check_heads(world: World) -> int:
    """Each ledger of the log and of the ack log that has an entry begins with a head, whose `former` is the position at
    which the fold of the ledgers before it stands. Returns how many there are, of all chains."""
    record, cursor = world.record, world.cursor[0]
    log, acks, found = DedupState(), SubscriptionsState(), 0
    for link in world.links:
        entries = entries_of(world, link.ledger_id)
        if entries:
            head, header = head_of(entries, EntryKind.HEAD_LOG), peek_header(entries[0])
            assert head.former == (None if log.position == BEFORE_ALL else log.position)
            assert (header.base_index, header.count) == (link.base_index, 0)
            metadata, _ = world.ledgers[link.ledger_id]
            assert (head.name, head.members, head.ack_quorum, head.era) == (record.name, metadata.members, 2, 1)
            found += 1
        fold(((peek_header(data), data) for data in entries), into=log)
    for ledger_id in record.acks:
        entries = entries_of(world, ledger_id)
        if entries:
            former = head_of(entries, EntryKind.HEAD_ACKS).former
            assert former == (None if acks.position == BEFORE_ALL else acks.position)
            found += 1
        for data in entries:
            acks.fold(peek_header(data), body_of(data))
    for ledger in [] if cursor is None else cursor.ledgers:
        entries = entries_of(world, ledger.ledger_id)
        if entries:
            assert head_of(entries, EntryKind.HEAD_SNAPSHOTS).former is None
            found += 1
    return found


def at(ledger_id: int, entry_id: int) -> Position:
    return Position(LedgerId(ledger_id), EntryId(entry_id))


def busy(world: World) -> Consuming:
    """An owner of a topic whose three chains have several ledgers; one ledger of the log has failed."""
    consuming = Consuming(world).publish(0, 4)
    owner = consuming.owner
    serving = owner.core.serving
    assert serving is not None
    subscribed = consuming.subscribe()
    for number in range(4):
        consuming.ack(subscribed, number, number)
        owner.run()
    for _ in range(2):
        serving.acks.ledgers.roll()
        serving.cursor.rebase()
        owner.roll()
        owner.run()
        consuming.publish(10, 2)
        consuming.ack(subscribed, 10, 4)
        owner.run()
    granted = owner.open("p")
    world.silent = {A, B, C}
    pid, generation = granted.instance
    owner.send(granted.session, received(90, [99], pid=pid, generation=generation))
    owner.run()
    owner.tick(10_000).run()
    world.silent = set()
    owner.tick(1_000).run()
    consuming.publish(20, 1)
    return consuming


def test_each_ledger_says_where_the_fold_stood_when_it_was_linked() -> None:
    """After rolls, and after a ledger whose entries were dropped."""
    world = World()
    busy(world)
    assert world.record.format == FORMAT_WITH_HEADS
    assert check_heads(world) >= 8


def takeover_steps() -> int:
    world = World()
    busy(world)
    owner = Owner(world, "o2")
    world.place(owner.core.ownership.me)
    owner.handle(TopicAssigned())
    steps = 0
    while not owner.emitted(Served):
        assert owner.step()
        steps += 1
    return steps


@pytest.mark.parametrize("stop_after", [*range(0, takeover_steps() + 1, 3), 1000])
def test_head_is_right_after_a_takeover_that_was_interrupted(stop_after: int) -> None:
    """The taker dies after any step; one member alone has the tail of the owner before it."""
    world = World()
    old = busy(world)
    granted = old.owner.open("p")
    pid, generation = granted.instance
    world.silent = {B, C}
    old.owner.send(granted.session, received(91, [100], pid=pid, generation=generation))
    old.owner.run()
    world.silent = set()
    second = Owner(world, "o2")
    world.place(second.core.ownership.me)
    second.handle(TopicAssigned())
    for _ in range(stop_after):
        second.step()
    third = Consuming(world, "o3").publish(40, 2)
    third.owner.roll()
    third.owner.run()
    third.publish(42, 1)
    before = check_heads(world)
    Consuming(world, "o4").publish(50, 1)
    assert check_heads(world) == before + 1


def test_ledger_with_nothing_but_a_head_is_passed_over() -> None:
    """Its frame reached the nodes in part. The next head names the last entry before it, and takeovers agree."""
    world = World()
    busy(world)
    second = Consuming(world, "o2")
    second.owner.ask("q", SendAdds)
    (frame,) = [effect for effect in second.owner.queue if isinstance(effect, SendAdds)]
    head, _ = frame.adds
    for member in frame.members:
        world.nodes[member][frame.ledger_id] = {0: b"".join(map(bytes, head.parts))}
    third = Consuming(world, "o3").publish(40, 2)
    assert entries_of(world, frame.ledger_id) == [b"".join(map(bytes, head.parts))]
    check_heads(world)
    former = head_of(entries_of(world, world.record.ledgers[-1].ledger_id), EntryKind.HEAD_LOG).former
    assert former is not None
    assert former < at(frame.ledger_id, 0)
    state = third.owner.core.serving
    assert state is not None
    assert state.log.table.state.position == world.folded().position


def test_takeover_without_traffic_writes_no_entry() -> None:
    """Thousands of idle topics move when an owner ends."""
    world = World()
    busy(world)
    sent = Owner(world, "o2").take_over().emitted(SendAdds)
    assert sent == []
    empty = world.record.ledgers[-1].ledger_id
    third = Owner(world, "o3").take_over()
    assert third.emitted(SendAdds) == []
    assert empty not in [link.ledger_id for link in world.record.ledgers]


def test_hand_over_of_an_owner_that_wrote_nothing_deletes_its_ledger() -> None:
    """It is empty, as before there were heads."""
    world = World()
    owner = Owner(world, "o1").take_over()
    (first,) = world.record.ledgers
    owner.handle(DrainRequested())
    owner.run()
    Owner(world, "o2").take_over()
    assert first.ledger_id not in [link.ledger_id for link in world.record.ledgers]
    assert owner.emitted(DeleteLedgers) == []


def test_ack_log_that_opens_before_the_log_has_heads() -> None:
    """A consumer came before the log's first ledger was linked."""
    world = World()
    owner = Owner(world, "o1").take_over(WRITE_LEDGER)
    assert owner.core.serving is not None
    owner.core.serving.acks.open()
    owner.queue += owner.core._step.take()
    log_last = [effect for effect in owner.queue if kind_of(effect) == WRITE_LEDGER]
    owner.queue = deque(effect for effect in owner.queue if effect not in log_last)
    owner.run()
    assert (world.record.ledgers, len(world.record.acks)) == ((), 1)
    assert world.record.format == FORMAT_WITH_HEADS


def test_record_says_so_before_the_first_head() -> None:
    """In the write that links the first ledger."""
    world = World()
    owner = Owner(world, "o1").take_over(WRITE_TOPIC)
    assert owner.emitted(SendAdds) == []
    assert [write.value.format for write in owner.writes(TopicKey, owner.queue)] == [FORMAT_WITH_HEADS]
    owner.run()
