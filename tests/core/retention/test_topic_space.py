"""Space of a topic at its owner: retention, time to live, backlog quotas, and the pause of PIP-299."""

from dataclasses import replace
from itertools import pairwise

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.delivery.events import SeekRequested
from oncelog.core.errors import BacklogQuotaExceeded
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.policies.ack_state_limit import PausePolicy
from oncelog.core.policies.retention_rules import BacklogQuota, QuotaAction, RetentionPolicy
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic_events.effects import CheckClock, EndSession, LogTrimmed, ReadLedgerEnds
from oncelog.core.topic_events.events import PoliciesChanged, TrimRequested
from tests.core.builders import A, B, received
from tests.core.topic.test_topic_subscriptions import SMALL, Consuming
from tests.core.topic.topic_world import SETTINGS, Owner, World

NOTHING_KEPT = TopicPolicies(RetentionPolicy(0, 0))
MINUTE = 60_000
START_MS = 1_000_000
#: Snapshots are rare, so that nothing but the policies moves the trim bound.
RARE = replace(SETTINGS, ledger_entries_max=4, snapshot=SnapshotSettings(interval_ms=1 << 40, gap_ms=0))


def consuming(world: World | None = None, name: str = "o1") -> Consuming:
    own = Consuming(world or World(), name, SMALL)
    own.owner.now_ms += START_MS
    return own


def follow(own: Consuming, policies: TopicPolicies) -> None:
    own.owner.handle(PoliciesChanged(policies))
    passes(own, 0)


def passes(own: Consuming, after_ms: int, *, steps: int = 8) -> None:
    """Everything is done, time passes, and everything is done that became due."""
    own.owner.run()
    own.owner.tick(after_ms).run()
    for _ in range(steps):
        own.owner.tick(1_001).run()


def first_index(own: Consuming) -> int:
    return own.world.record.ledgers[0].base_index


def kept_bytes(world: World) -> int:
    return sum(len(data) for link in world.record.ledgers for data in world.entries_of(link.ledger_id).values())


# --- retention --------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("seek-below-a-trim")
def test_nothing_is_deleted_by_default() -> None:
    """For ever is the default, with and without subscriptions. After a takeover the sizes of former ledgers are read
    once, because a subscription that is behind in them shows the bytes of its backlog."""
    own = consuming().publish(0, 20)
    own.subscribe()
    passes(own, 1 << 40)
    assert first_index(own) == 0
    assert own.owner.emitted(CheckClock) == []
    assert own.owner.emitted(ReadLedgerEnds) == []
    two = consuming(own.world, "o2")
    passes(two, 1 << 41)
    assert first_index(two) == 0
    assert len(two.owner.emitted(ReadLedgerEnds)) == 1
    assert two.owner.core.serving is not None
    assert two.owner.core.serving.space.ledgers.unknown_below == 0


def test_next_owner_reads_the_sizes_of_the_ledgers_of_a_backlog_only() -> None:
    """After a restore all topics are taken over. A subscription that lacked one message made the owner read the records
    and the last entries of all ledgers of the log. One that goes back needs more of them."""
    own = consuming().publish(0, 20)
    own.ack(own.subscribe(), 1, *range(17))
    own.owner.run()
    two = consuming(own.world, "o2")
    passes(two, 0)
    links = two.world.record.ledgers
    needed = tuple(link.ledger_id for link, after in pairwise(links) if after.base_index > 17)
    assert 0 < len(needed) < len(links) - 2
    assert [effect.ledger_ids for effect in two.owner.emitted(ReadLedgerEnds)] == [needed]
    assert two.owner.core.serving is not None
    (number,) = two.owner.core.serving.acks.state.subscriptions
    two.owner.handle(SeekRequested(7, number, 0))
    passes(two, 0)
    assert two.owner.core.serving.space.ledgers.unknown_below == 0
    read = [ledger_id for effect in two.owner.emitted(ReadLedgerEnds) for ledger_id in effect.ledger_ids]
    assert len(set(read)) == len(read) > len(needed), "each is read once"


def test_retention_by_size_keeps_a_constant_size() -> None:
    """Also behind a takeover: then the ledgers of the former owner are asked for their ends, once."""
    own = consuming().publish(0, 40)
    size = kept_bytes(own.world)
    follow(own, TopicPolicies(RetentionPolicy(size_bytes=size // 4)))
    highest = 0
    for number in range(40, 200, 4):
        own.publish(number, 4)
        passes(own, 0, steps=2)
        highest = max(highest, kept_bytes(own.world))
    assert highest <= size
    before = first_index(own)
    assert before > 100
    two = consuming(own.world, "o2")
    two.owner.now_ms = own.owner.now_ms
    follow(two, TopicPolicies(RetentionPolicy(size_bytes=size // 4)))
    two.publish(200, 40)
    passes(two, 0)
    assert first_index(two) > before
    assert kept_bytes(own.world) <= size
    assert len(two.owner.emitted(ReadLedgerEnds)) == 1


@pytest.mark.hazard("wrong-clock-expires")
def test_retention_by_time_deletes_what_is_old_even_in_an_idle_topic() -> None:
    """The open ledger is rolled, bases are written, and in the end no message is left; the topic goes on from there."""
    own = consuming().publish(0, 10)
    follow(own, TopicPolicies(RetentionPolicy(time_ms=30 * MINUTE)))
    passes(own, 29 * MINUTE)
    assert first_index(own) == 0
    for _ in range(10):
        passes(own, MINUTE)
    assert first_index(own) == 10
    assert len(own.world.record.ledgers) == 1
    two = consuming(own.world, "o2")
    two.publish(10, 2)
    assert two.owner.open().last_sequence_id == 11
    assert two.owner.core.serving is not None
    assert two.owner.core.serving.log.table.state.next_index == 12


@pytest.mark.hazard("wrong-clock-expires")
def test_clock_that_disagrees_with_zookeepers_deletes_nothing() -> None:
    """And acknowledges nothing. When they agree again, what is due is done."""
    own = consuming()
    own.world.ahead_ms = -2 * MINUTE
    own.subscribe()
    own.publish(0, 10)
    follow(own, TopicPolicies(RetentionPolicy(time_ms=MINUTE), ttl_ms=MINUTE))
    for _ in range(20):
        passes(own, MINUTE)
    assert first_index(own) == 0
    assert own.world.folded_acks().first_needed == 0
    own.world.ahead_ms = MINUTE
    for _ in range(20):
        passes(own, MINUTE)
    assert first_index(own) == 10


def test_trim_of_another_list_does_not_end_that_of_the_log() -> None:
    """Ledgers without messages: the index of the first message is the same before and after. Taken for trimmed, the
    second trim began from sizes that did not fit the record any more, and the core raised."""
    own = consuming()
    own.owner.open("p")
    for _ in range(3):
        own.owner.roll()
        own.owner.run()
    own.publish(0, 10)
    serving = own.owner.core.serving
    assert serving is not None
    empty = [link.ledger_id for link, after in pairwise(own.world.record.ledgers) if after.base_index == 0]
    own.owner.handle(TrimRequested(Position(LedgerId(empty[-1] + 1), EntryId(0))))
    assert not serving.space.idle
    serving.space.trimmed()  # ledgers left the list of the ack log
    assert own.owner.emitted(LogTrimmed) == []
    assert not serving.space.idle
    own.owner.run()
    assert [effect.ledgers for effect in own.owner.emitted(LogTrimmed)] == [len(empty)]
    assert own.world.record.ledgers[0].ledger_id > empty[-1]


@pytest.mark.hazard("failed-ack-write", "seek-below-a-trim")
def test_unacknowledged_messages_stay_whatever_retention_says() -> None:
    """They go when their acknowledgement is durable."""
    own = consuming()
    subscribed = own.subscribe()
    follow(own, NOTHING_KEPT)
    own.publish(0, 30)
    own.ack(subscribed, 1, *range(5), *range(6, 30))
    passes(own, MINUTE)
    assert first_index(own) <= 5
    own.ack(subscribed, 2, 5)
    own.owner.run(SendAdds)
    for _ in range(3):
        own.owner.tick(1_001).run(SendAdds)
    assert first_index(own) <= 5, "the acknowledgement is in flight"
    passes(own, MINUTE)
    assert first_index(own) == 28, "the open ledger is younger than the age at which it is rolled for retention"


@pytest.mark.hazard("seek-below-a-trim")
def test_retention_does_not_trim_beside_a_step_back() -> None:
    """The place of a seek in flight is still there when it is durable."""
    own = consuming()
    subscribed = own.subscribe()
    own.publish(0, 30)
    own.ack(subscribed, 1, *range(30))
    own.owner.run()
    number = next(iter(own.world.folded_acks().subscriptions))
    own.owner.handle(SeekRequested(7, number, 2))
    own.owner.handle(PoliciesChanged(NOTHING_KEPT))
    for _ in range(3):
        own.owner.tick(1_001).run(SendAdds)
    assert first_index(own) == 0
    own.owner.run()
    passes(own, 0)
    assert own.world.folded_acks().first_needed == 2
    assert first_index(own) <= 2


def test_base_is_written_when_only_the_snapshots_hold_ledgers_back() -> None:
    """Otherwise a topic whose snapshots are rare would keep what its policy lets go."""
    world = World()
    own = Consuming(world, "o1", RARE)
    own.owner.now_ms += START_MS
    own.publish(0, 40)
    follow(own, TopicPolicies(RetentionPolicy(size_bytes=1)))
    for _ in range(4):
        passes(own, MINUTE)
    assert first_index(own) >= 36
    assert Owner(world, "o2").take_over().open().last_sequence_id == 39


# --- time to live -----------------------------------------------------------------------------------------------------


@pytest.mark.hazard("wrong-clock-expires")
def test_expired_messages_count_as_acknowledged() -> None:
    """Younger ones do not, and consumers get them. The next owner knows it."""
    own = consuming()
    own.subscribe(window=0)
    own.publish(0, 5)
    own.owner.now_ms += 10 * MINUTE
    own.publish(5, 5)
    follow(own, TopicPolicies(ttl_ms=5 * MINUTE))
    passes(own, 0)
    assert own.world.folded_acks().first_needed == 5
    two = consuming(own.world, "o2")
    two.owner.now_ms = own.owner.now_ms
    assert two.delivered(two.subscribe().consumer) == [5, 6, 7, 8, 9]
    follow(two, TopicPolicies(ttl_ms=5 * MINUTE))
    passes(two, 10 * MINUTE)
    assert two.world.folded_acks().first_needed == 10


# --- backlog quotas ---------------------------------------------------------------------------------------------------


def stored(own: Consuming, request: int) -> list[object]:
    return [answer.result for answer in own.owner.batches if answer.request == request]


def bytes_of_messages(own: Consuming) -> int:
    serving = own.owner.core.serving
    assert serving is not None
    ledgers = serving.space.ledgers
    found = sum(span.message_bytes for span in ledgers.spans())
    assert ledgers.message_bytes in {found, None if ledgers.unknown else found}
    return found


def held(own: Consuming) -> bool:
    serving = own.owner.core.serving
    assert serving is not None
    return serving.space.verdict.hold


@pytest.mark.hazard("full-disk-refuses-acks")
def test_held_publishing_goes_on_when_consumers_have_caught_up() -> None:
    """Nothing is refused and nothing is lost. Grants are not held: they are the system's own."""
    own = consuming()
    subscribed = own.subscribe()
    own.publish(0, 10)
    follow(own, TopicPolicies(quota=BacklogQuota(QuotaAction.HOLD, bytes_max=bytes_of_messages(own) - 1)))
    granted = own.owner.open("p")
    pid, generation = granted.instance
    own.owner.send(granted.session, received(500, [10], pid=pid, generation=generation))
    passes(own, 0)
    assert stored(own, 500) == []
    assert own.owner.core.serving is not None
    space, holds = own.owner.core.serving.space, own.owner.core.serving.space.held
    passes(own, MINUTE)
    assert (space.held, space.publishing) == (holds, "held")
    assert holds is not None
    assert holds.number == 1
    own.ack(subscribed, 1, 0, 1, 2)
    passes(own, 0)
    assert (space.held, space.publishing) == (None, "open")
    assert len(stored(own, 500)) == 1
    assert own.world.folded().next_index == 11


@pytest.mark.hazard("full-disk-refuses-acks")
def test_refused_publishing_ends_the_producer_before_deduplication() -> None:
    """Also a batch that is stored already; another producer may go on when consumers have caught up."""
    own = consuming()
    subscribed = own.subscribe()
    own.publish(0, 10)
    quota = BacklogQuota(QuotaAction.REFUSE, bytes_max=bytes_of_messages(own) - 1)
    follow(own, TopicPolicies(quota=quota))
    granted = own.owner.open("p")
    pid, generation = granted.instance
    own.owner.send(granted.session, received(500, [9], pid=pid, generation=generation))
    own.owner.run()
    (refused,) = stored(own, 500)
    assert isinstance(refused, BacklogQuotaExceeded)
    assert not refused.retriable
    assert [effect.error.code for effect in own.owner.emitted(EndSession)][-1] == "backlog_quota_exceeded"
    own.ack(subscribed, 1, *range(10))
    passes(own, 0)
    own.publish(10, 1)
    assert own.world.folded().next_index == 11


@pytest.mark.hazard("full-disk-refuses-acks", "wrong-clock-expires")
def test_eviction_lowers_the_backlog_of_the_subscription_that_is_over_its_quota() -> None:
    """By size to 90 % of the limit; publishing goes on."""
    own = consuming()
    own.subscribe(window=0)
    own.publish(0, 100)
    limit = bytes_of_messages(own) // 2
    follow(own, TopicPolicies(quota=BacklogQuota(QuotaAction.EVICT, bytes_max=limit)))
    passes(own, 0)
    first = own.world.folded_acks().first_needed
    assert first is not None
    assert 54 <= first <= 56
    own.publish(100, 1)
    assert own.world.folded().next_index == 101


def test_quota_by_age_holds_while_the_oldest_message_is_too_old() -> None:
    """As the other limits of age, by two clocks that agree."""
    own = consuming()
    subscribed = own.subscribe(window=0)
    own.publish(0, 3)
    follow(own, TopicPolicies(quota=BacklogQuota(QuotaAction.HOLD, age_ms_max=MINUTE)))
    passes(own, 0)
    assert not held(own)
    passes(own, 2 * MINUTE, steps=20)
    assert held(own)
    own.ack(subscribed, 1, 0, 1, 2)
    passes(own, 0)
    assert not held(own)


# --- PIP-299 ----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_pause_follows_its_policy_at_run_time_and_at_load() -> None:
    """Over the limit nothing new is delivered; raised, lowered and switched off, the policy counts at once."""
    own = consuming()
    subscribed = own.subscribe()
    own.publish(0, 10)
    own.ack(subscribed, 1, 1, 3, 5)
    own.owner.run()
    follow(own, TopicPolicies(pause=PausePolicy(enabled=True, unacked_ranges_max=2)))
    own.publish(10, 2)
    assert own.delivered(subscribed.consumer) == list(range(10))
    follow(own, TopicPolicies(pause=PausePolicy(enabled=True, unacked_ranges_max=9)))
    assert own.delivered(subscribed.consumer) == list(range(12))
    two = consuming(own.world, "o2")
    two.owner.handle(PoliciesChanged(TopicPolicies(pause=PausePolicy(enabled=True, unacked_ranges_max=2))))
    again = two.subscribe()
    two.publish(12, 2)
    assert set(two.delivered(again.consumer)) == {0, 2, 4}
    follow(two, TopicPolicies())
    assert set(two.delivered(again.consumer)) == {0, 2, 4, *range(6, 14)}


@pytest.mark.hazard("dispatch-paused-for-ever")
def test_ack_log_that_cannot_be_written_pauses_delivery_while_the_policy_is_on() -> None:
    """And delivery goes on when acknowledgements are durable again. With the policy off nothing is withheld."""
    own = consuming()
    subscribed = own.subscribe()
    follow(own, TopicPolicies(pause=PausePolicy(enabled=True)))
    own.publish(0, 4)
    serving = own.owner.core.serving
    assert serving is not None
    own.ack(subscribed, 1, 0)
    own.owner.run(SendAdds)
    for _ in range(10):
        own.owner.tick(250)
    (subscription,) = serving.subscriptions
    assert subscription.pause_reason == "acknowledgements cannot be made durable"
    own.owner.run()
    own.owner.tick(250).run()
    assert subscription.pause_reason == ""
    own.ack(subscribed, 2, 1)
    own.owner.handle(PoliciesChanged(TopicPolicies()))
    for _ in range(10):
        own.owner.tick(250)
    assert subscription.pause_reason == ""


def test_silent_ack_ledger_is_seen() -> None:
    """Members that answer nothing leave the entry in flight: not writable, although the ledger is open."""
    own = consuming()
    subscribed = own.subscribe()
    own.publish(0, 2)
    serving = own.owner.core.serving
    assert serving is not None
    own.world.silent = {A, B}
    own.ack(subscribed, 1, 0)
    own.owner.run()
    for _ in range(10):
        own.owner.tick(100)
    assert not serving.acks.writable
    assert own.answered(1) == []
