"""The histories that break naive designs, each on the simulated cluster, with and without the rule that prevents it.

A test passes if an invariant fails in a history without the rule, and none in the same history with it. 13 comes with
the leases of producer ids. 18 and 20, damage that looks like a torn tail and the records of a recycled segment, lie in
the journal's bytes: see tests/contract/node/directory/test_journal.py and test_segments.py.
"""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from oncelog.core.chain import next_ledger
from oncelog.core.errors import InvalidArgument, ModeMismatch, NotOwner, OncelogError, StaleSequence
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import Granted, Leased, ProducerOpening
from oncelog.core.formats.outcome import Outcome
from oncelog.core.formats.topic_record import LedgerLink, encode_topic
from oncelog.core.ids import Incarnation, OwnerEpoch, SessionNumber
from oncelog.core.placement.owner_suspicion import (
    ConnectionRefused,
    OwnerSuspicion,
    StreamClosed,
    SuspicionEffect,
    SuspicionEvent,
)
from oncelog.core.publishing.dedup_table import DedupTable
from oncelog.core.publishing.opening_queue import Opening
from oncelog.core.publishing.openings import Openings
from oncelog.core.sdk.producer import session as producer_session
from oncelog.core.topic import serving
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import AnswerOpen
from tests.simulation.clients.producer_client import Input
from tests.simulation.cluster import Rules
from tests.simulation.histories.directed import Directed, fails_only_with, steady, without
from tests.simulation.network import NetworkFaults, Stream
from tests.simulation.planted.mutants import MUTANTS
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.store.decoding import decode_ledger, decode_topic
from tests.simulation.servers.store.store import StoreFaults
from tests.simulation.shapes import Shape, restless_shape

LOSSY = NetworkFaults(drop=0.02, break_stream=0.02)
UNSURE = StoreFaults(lost_reply=0.15)
MUTANT_OF = {mutant.name: mutant for mutant in MUTANTS}


class Visitor:
    """A client that opens one producer and records the answer."""

    def __init__(self, one: Directed, owner: OwnerServer, opening: ProducerOpening) -> None:
        self.result: Granted | OncelogError | None = None
        self.stream = Stream(one.cluster.network, one.cluster.stranger, owner)
        owner.open(self, one.cluster.topic_ids[0], opening)
        one.until(one.world.now + 200)

    def opened(self, answer: AnswerOpen, owner_epoch: OwnerEpoch) -> None:
        assert not isinstance(answer.result, Leased)
        self.result = answer.result

    def answered(
        self, session: SessionNumber, answers: list[tuple[int, Outcome | OncelogError]], owner_epoch: OwnerEpoch
    ) -> None:
        """This client sends no batch, so it gets no answer."""

    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None:
        """This client does not use the session."""


def holds_and_breaks(mutant: str, kinds: tuple[str, ...], seeds: range, **how: Any) -> None:
    """Without the rule one of the seeds fails; with the rule this seed passes."""
    assert fails_only_with(MUTANT_OF[mutant].planted(), seeds, kinds, **how)


@pytest.mark.hazard("stale-record-after-conflict")
def test_the_topic_record_orders_owners() -> None:
    """Owners lose their topic while they open ledgers, and replies of their writes are lost."""
    holds_and_breaks("E retried after a conflict", ("theft", "owner crash"), range(12, 21), store=UNSURE)


@pytest.mark.hazard("former-incarnation")
def test_a_zombie_writer_does_not_recreate_a_deleted_ledger() -> None:
    """An owner is paused until its ledger is closed, trimmed and deleted, and then writes to nodes that forgot it."""
    holds_and_breaks("first adds unchecked", ("long sleep",), range(3), shape=restless_shape())


@pytest.mark.hazard("former-incarnation")
def test_a_wiped_node_has_a_new_incarnation() -> None:
    """An empty directory at an old address proves nothing about the earlier directory."""
    kinds = ("wipe while recovering",)
    holds_and_breaks("a wiped node answers for its former self", kinds, range(4), shape=restless_shape())


def _topic_made_anew(topic_changes: bool) -> Directed:
    """Delete and recreate the topic while its owner is paused. Returns the run after the owner has resumed."""
    one = Directed(5, shape=steady(restless_shape()))
    one.until(800)
    cluster, store = one.cluster, one.cluster.store
    topic_id = cluster.topic_ids[0]
    owner = next(o for o in cluster.owners.values() if topic_id in o.topics)
    shell = owner.topics[topic_id]
    data, version = store.get(f"topics/{topic_id}")
    assert data is not None
    owner.pause()
    new_id = topic_id[:-1] + "9" if topic_changes else topic_id
    store.observers.clear()
    store.records.pop(f"topics/{topic_id}")
    store.records[f"topics/{new_id}"] = (encode_topic(decode_topic(data)), version)
    owner.wake()
    while shell.core.phase is Phase.SERVING and one.world.now < 3000:
        one.step()
    one.until(one.world.now + 50)
    return one


@pytest.mark.hazard("recreated-topic")
def test_a_recreated_topic_gets_another_id() -> None:
    """The compare-and-set of a paused owner finds no record of its topic id. A reused id would name the new topic."""
    for changes in (True, False):
        one = _topic_made_anew(topic_changes=changes)
        topic_id = one.cluster.topic_ids[0]
        written = one.cluster.store.get(f"topics/{topic_id}")[0]
        assert (written is None) is changes


@pytest.mark.hazard("block-claimed-twice")
def test_a_claim_counts_by_its_nonce() -> None:
    """Two claimers and lost replies: without the nonce both would get the same number."""
    holds_and_breaks("a block claim believed without its nonce", ("id rush", "owner crash"), range(4), store=UNSURE)


@pytest.mark.hazard("living-owner-suspected")
def test_closed_streams_alone_move_no_topic() -> None:
    """All streams between owners and replicas close repeatedly. No owner is suspected, because no owner refuses a
    connection."""

    def epochs() -> int:
        one = Directed(5, shape=steady(restless_shape()))
        for tick in range(500, 3500, 500):
            one.until(tick)
            for owner in one.cluster.owners.values():
                for stream in list(owner.streams):
                    stream.sever()
        return max(watch.record.owner_epoch for watch in one.cluster.watch.topics.values())

    def believes_at_once(suspicion: OwnerSuspicion, event: SuspicionEvent) -> list[SuspicionEffect]:
        effects = handle(suspicion, event)
        return handle(suspicion, ConnectionRefused(event.owner)) if isinstance(event, StreamClosed) else effects

    assert epochs() == 1
    handle = OwnerSuspicion.handle
    with without((OwnerSuspicion, "handle", believes_at_once)):
        assert epochs() > 1


@pytest.mark.hazard("living-owner-suspected")
def test_a_missing_route_in_a_network_partition_moves_no_topic() -> None:
    """A network partition separates a replica from a topic's owner, and its connections fail with "no route". The owner
    is not suspected, because the stream had no answer before it ended."""

    def epochs() -> int:
        one = Directed(3, shape=steady(restless_shape()))
        one.until(500)
        replica, topic_id = one.cluster.metadata[0], one.cluster.topic_ids[0]
        owner = next(o for o in one.cluster.owners.values() if topic_id in o.topics)
        for ends in ((replica.name, owner.name), (owner.name, replica.name)):
            one.cluster.network.cuts[ends] = one.world.now + 500
            for stream in [stream for stream in owner.streams if replica in stream.ends]:
                stream.sever()
            one.until(one.world.now + 1_000)
        assert one.world.counts["no route to a host behind a cut"]
        return max(watch.record.owner_epoch for watch in one.cluster.watch.topics.values())

    def believes_the_network(suspicion: OwnerSuspicion, event: SuspicionEvent) -> list[SuspicionEffect]:
        return handle(suspicion, replace(event, answered=True) if isinstance(event, StreamClosed) else event)

    assert epochs() == 1
    handle = OwnerSuspicion.handle
    with without((OwnerSuspicion, "handle", believes_the_network)):
        assert epochs() > 1


def _deposed_and_unaware() -> Granted | OncelogError | None:
    """The answer of a deposed owner to a producer that the current owner has granted."""
    one = Directed(4, shape=steady(restless_shape()))
    one.until(800)
    cluster, topic_id = one.cluster, one.cluster.topic_ids[0]
    former = next(o for o in cluster.owners.values() if topic_id in o.topics)
    one.faults.pause(former, 10_000)
    one.until(2200)
    present = next(o for o in cluster.owners.values() if o is not former and topic_id in o.topics)
    for process in (*cluster.metadata, *cluster.producers):
        cluster.crash(process)
    by_name = ProducerOpening(1, "producer 0", SequenceMode.CONTIGUOUS)
    granted = Visitor(one, present, by_name).result
    assert isinstance(granted, Granted)
    former._backlog.clear()  # events in the backlog would make it write, and so find out that it is deposed
    former.wake()
    assert former.topics[topic_id].core.phase is Phase.SERVING
    seen = present.topics[topic_id].epoch
    resume = replace(by_name, name=None, resume=granted.instance, owner_epoch_seen=seen)
    return Visitor(one, former, resume).result


@pytest.mark.hazard("deposed-owner-refuses")
def test_a_deposed_owner_refuses_no_producer() -> None:
    """It does not know the generation that its successor granted, and would refuse it as never granted."""

    def open_unread(openings: Openings, opening: Opening) -> None:
        opening.confirmed = True
        open_confirmed(openings, opening)

    assert isinstance(_deposed_and_unaware(), NotOwner)
    open_confirmed = Openings._open
    with without((Openings, "_open", open_unread)):
        assert isinstance(_deposed_and_unaware(), InvalidArgument)


@pytest.mark.hazard("snapshot-before-fence")
def test_the_log_is_fenced_before_it_is_read() -> None:
    """Recover, then load the snapshot, then replay."""
    holds_and_breaks("snapshot and log read before the log is fenced", ("owner crash", "theft"), range(3))


@pytest.mark.hazard("members-lost-in-turn")
def test_a_permanently_lost_member_is_replaced() -> None:
    """After a wipe no ledger continues with the lost incarnation."""

    def members() -> tuple[Incarnation, ...]:
        one = Directed(1, shape=steady(Shape(owners=2, nodes=4), count=400))
        one.until(500)
        one.faults.wipe(50)
        one.until(3500)
        record = one.cluster.watch.topics[one.cluster.topic_ids[0]].record
        data, _ = one.cluster.store.get(f"ledgers/{record.ledgers[-1].ledger_id}")
        assert data is not None
        assert len(one.faults.wiped.disks) == 2
        gone = next(iter(one.faults.wiped.disks))
        return tuple(member for member in decode_ledger(data).members if member == gone)

    def pick_any(_: int, live: tuple[str, ...], __: object, retired: tuple[str, ...], *___: int) -> tuple[str, ...]:
        return (*retired, *live)[:3]

    assert not members()
    with without((next_ledger, "pick_members", pick_any)):
        assert members()


@pytest.mark.hazard("id-between-stored-ids")
def test_ids_are_checked_by_batch() -> None:
    """An application sends ids that lie in the holes of stored batches."""
    inputs = [(Input("p", SequenceMode.MONOTONIC, range(0, 200, 3), careless=0.3, holes=range(1, 190, 3)), 1)]
    shape = Shape(readers=0, inputs=inputs)
    holds_and_breaks("ids judged by range", ("client crash",), range(3), shape=shape)


@pytest.mark.hazard("marks-of-a-failed-write")
@pytest.mark.parametrize(
    "mutant",
    ["one mark instead of two", "later batch accepted after a failed one", "accepted marks survive a failed write"],
)
def test_a_failed_write_is_rolled_back_completely(mutant: str) -> None:
    """Too many members stop answering. Clients resume and resend the batches in flight; then the write fails."""
    holds_and_breaks(mutant, ("stuck write",), range(8), network=LOSSY)


@pytest.mark.hazard("forgotten-producer")
def test_an_unknown_producer_is_not_treated_as_new() -> None:
    """A client resumes a producer id that was never granted."""
    holds_and_breaks("unknown producer id accepted", ("stranger",), range(4))


@pytest.mark.hazard("incomplete-grant")
def test_a_name_keeps_its_mode() -> None:
    """The contiguous producer's name is opened as a monotonic one."""

    def visit() -> Granted | OncelogError | None:
        one = Directed(2, shape=steady(restless_shape()))
        one.cluster.producers[0].source.places += 1  # the visitor's
        one.until(600)
        owner = next(o for o in one.cluster.owners.values() if one.cluster.topic_ids[0] in o.topics)
        return Visitor(one, owner, ProducerOpening(1, "producer 0", SequenceMode.MONOTONIC)).result

    assert isinstance(visit(), ModeMismatch)
    with without((DedupTable, "mode_of", lambda *_: SequenceMode.MONOTONIC)):
        assert isinstance(visit(), Granted)


@pytest.mark.hazard("endless-resend")
def test_a_refused_batch_ends_no_monotonic_producer() -> None:
    """StaleSequence is final for its batch: that result fails, and the producer goes on to the end of its input."""
    inputs = [(Input("p", SequenceMode.MONOTONIC, range(0, 120, 3), careless=0.3, holes=range(1, 110, 3)), 1)]
    shape = Shape(readers=0, inputs=inputs)
    never = without((producer_session, "FINAL_FOR_BATCH", (type("Never", (StaleSequence,), {}),)))
    assert fails_only_with(never, range(3), (), shape=shape)


@pytest.mark.hazard("dedup-toggled")
def test_toggling_dedup_keeps_the_dedup_state() -> None:
    """Ids stored while dedup is disabled are known when it is enabled again."""

    def forgets(table: DedupTable, header: object, batch: object, deltas: object) -> None:
        if table.dedup_enabled:
            fold(table, header, batch, deltas)  # type: ignore[arg-type]
        else:
            table.state._step(header)  # type: ignore[arg-type]

    fold = DedupTable.persisted_batch
    forgetful = without((DedupTable, "persisted_batch", forgets))
    assert fails_only_with(forgetful, range(4), ("switch", "client crash"), network=LOSSY)


@pytest.mark.hazard("unreadable-snapshot")
def test_a_trim_keeps_the_log_that_the_older_snapshot_needs() -> None:
    """The newest snapshot becomes unreadable: the one before it and the log from there on must be enough."""
    shape = restless_shape()
    shape = replace(shape, settings=replace(shape.settings, ledger_entries_max=2))
    holds_and_breaks("trim to the newest snapshot", ("rot", "trim"), range(70, 72), shape=shape)


@pytest.mark.hazard("indexes-after-a-trim")
def test_message_numbers_survive_a_trim() -> None:
    """All ledgers before the last are trimmed, and owners crash. Message numbers continue without a gap."""
    kinds, shape = ("trim", "owner crash"), restless_shape()
    counts_anew = without((serving, "LedgerLink", lambda ledger_id, _: LedgerLink(ledger_id, 0)))
    assert fails_only_with(counts_anew, range(3), kinds, shape=shape)


@pytest.mark.hazard("repeated-add-not-synced")
def test_a_repeated_add_is_answered_when_it_is_synced() -> None:
    """A node restarts with entries of a recovery only in its page cache, and gets the same adds again."""
    kinds, shape = ("crash while recovering",), restless_shape()
    assert fails_only_with(nullcontext(Rules(sync_at_start=False)), range(6), kinds, shape=shape)
