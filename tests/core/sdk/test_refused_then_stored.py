"""What a producer says of a message after a failed write, with both cores: "never stored" is never said of a message
that a storage node has in a ledger which the next one does not follow yet.

Ledger 1 fails, and one member alone has its tail. Ledger 2 is linked and empty. If ZooKeeper is lost now, the storage
nodes show ledger 1 as the last one, and the recovery of a rebuild finds the tail.
"""

import inspect

import pytest

from oncelog.core import errors
from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import BacklogQuotaExceeded, Fatal, StaleSequence
from oncelog.core.formats.batch import peek_batch
from oncelog.core.formats.entry import EntryKind, SequenceMode, body_of, peek_header
from oncelog.core.formats.head import decode_head
from oncelog.core.ids import EntryId, InstanceId, OwnerEpoch, Position
from oncelog.core.policies.retention_rules import QuotaVerdict
from oncelog.core.sdk.owner_attempts import StreamLost
from oncelog.core.sdk.producer.events import BatchesAnswered
from tests.core.builders import A, B, C
from tests.core.sdk.test_producer_chunks import Run, started, steps_of
from tests.core.topic.topic_world import World

#: {request of `started`: the sequence id of its message}
IDS = {1: 0, 6: 1, 7: 2}
FINAL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Fatal) and kind is not Fatal and kind is not StaleSequence
]


def anywhere(world: World) -> set[int]:
    """The ids of the messages that at least one storage node has, in whatever ledger."""
    entries = [data for ledgers in world.nodes.values() for held in ledgers.values() for data in held.values()]
    return {peek_batch(body_of(data)).first for data in entries if peek_header(data).kind == EntryKind.MESSAGES}


def run_to_end(run: Run) -> Run:
    while run.step():
        pass
    return run


def fail_the_ledger(run: Run) -> None:
    """Two members are silent until the owner gives the ledger up, and opens the next one."""
    run.world.silent = {B, C}
    run.step()
    run.owner.tick(10_000).run()
    run.world.silent = set()
    run.owner.tick(1_000).run()


def written_on_one_node() -> Run:
    """Message 0 is on one member of ledger 1, which was closed without it. Ledger 2 is empty, and the producer has its
    session back: it is the same instance, so it needs no grant."""
    run = Run(world=World(), may_end=True)
    run.send(1, b"value")
    fail_the_ledger(run)
    while not run.frames:
        assert run.step()
    first, second = run.world.record.ledgers
    assert run.world.nodes[A][first.ledger_id]
    assert run.world.entries_of(second.ledger_id) == {}
    assert anywhere(run.world) == {0}
    return run


def refuse_all(run: Run) -> None:
    """The backlog quota of the topic refuses what is published, before deduplication judges it."""
    assert run.owner.core.serving is not None
    run.owner.core.serving.sessions.quota_checked(QuotaVerdict(refuse=True))


@pytest.mark.hazard("refused-then-stored")
def test_quota_refuses_a_resent_message_while_the_next_ledger_is_empty() -> None:
    """The answer is final for the producer, and says nothing about the earlier sending."""
    run = written_on_one_node()
    refuse_all(run)
    run_to_end(run)
    assert isinstance(run.failed[1], BacklogQuotaExceeded)
    assert run.told == {1: None}


@pytest.mark.hazard("refused-then-stored")
@pytest.mark.parametrize("kind", FINAL)
@pytest.mark.parametrize("mode", list(SequenceMode))
def test_no_final_error_says_that_a_resent_message_is_not_stored(kind: type[Fatal], mode: SequenceMode) -> None:
    """Whatever an owner may ever refuse a batch for."""
    run = Run(mode, world=World(), may_end=True)
    run.send(1, b"value")
    run.frames.clear()
    run.feed(StreamLost(run.producer.opening.attempt))
    assert run.producer.session is not None
    epoch = OwnerEpoch(run.world.record.owner_epoch)
    run.feed(BatchesAnswered(run.producer.session, [(1, kind("no"))], epoch))
    assert run.told == {1: None}


@pytest.mark.hazard("refused-then-stored")
def test_message_of_a_dropped_tail_is_never_stale() -> None:
    """`StaleSequence` alone is believed whatever was sent before. The tail is above the mark of the fold, so the resend
    is stored, and the head of its ledger shuts the tail out."""
    run = run_to_end(written_on_one_node())
    assert run.failed == {}
    first, second = run.world.record.ledgers
    entries = run.world.entries_of(second.ledger_id)
    head, stored = peek_header(entries[0]), peek_header(entries[1])
    assert (head.kind, stored.kind) == (EntryKind.HEAD_LOG, EntryKind.MESSAGES)
    tail = Position(first.ledger_id, EntryId(max(run.world.nodes[A][first.ledger_id])))
    former = decode_head(body_of(entries[0])).former
    assert former is not None
    assert former < tail
    assert former == Position(first.ledger_id, run.world.ledgers[first.ledger_id][0].end)


@pytest.mark.hazard("refused-then-stored")
def test_another_instance_learns_the_mark_behind_a_head_only() -> None:
    """It is told that message 0 is not stored: its grant, and so a head, is durable by then."""
    run = written_on_one_node()
    run.frames.clear()
    call = run.owner.ask("p", SendAdds, instance_id=InstanceId(b"another instance"))
    assert call not in run.owner.answers
    run.owner.run()
    assert run.owner.answers[call].last_sequence_id == -1  # type: ignore[attr-defined]
    (_, second) = run.world.record.ledgers
    kinds = [peek_header(data).kind for _, data in sorted(run.world.entries_of(second.ledger_id).items())]
    assert kinds == [EntryKind.HEAD_LOG, EntryKind.PRODUCER_OPENED]


@pytest.mark.hazard("refused-then-stored")
@pytest.mark.parametrize("in_flight_count_max", [1, 3, 64])
@pytest.mark.parametrize("mode", list(SequenceMode))
@pytest.mark.parametrize("end", ["write fails", "answers are lost", "both"])
def test_message_that_is_told_not_stored_is_on_no_node(end: str, mode: SequenceMode, in_flight_count_max: int) -> None:
    """At every point of three messages, one of them in chunks: something fails, and then the owner refuses all."""
    not_stored = 0
    for point in range(steps_of(mode, in_flight_count_max) + 1):
        run = started(mode, in_flight_count_max, World())
        run.may_end = True
        for _ in range(point):
            run.step()
        if end != "answers are lost":
            fail_the_ledger(run)
        if end != "write fails":
            run.frames.clear()
            run.answered = len(run.owner.batches)
            run.feed(StreamLost(run.producer.opening.attempt))
        refuse_all(run)
        run_to_end(run)
        assert run.outcomes.keys() | run.told.keys() == IDS.keys()
        for request, stored in run.told.items():
            assert stored is not True
            assert stored is None or IDS[request] not in anywhere(run.world), (point, request)
        not_stored += sum(stored is False for stored in run.told.values())
    assert not_stored, "some are known not to be stored"
