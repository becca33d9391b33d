"""The sweep reaches every fault and every verdict; otherwise it would prove nothing about them."""

import pytest

from tests.simulation.shapes import ACK_SEEDS, CONSUMER_SEEDS, DOOR_SEEDS, EFFECT_SEEDS, LEASE_SEEDS, RESTORE_SEEDS
from tests.simulation.sweep import counts

FAULTS = (
    "message delayed", "message dropped", "message duplicated", "message cut off", "message held by a clog",
    "one-way cut", "clog", "stream broken", "stale route", "owner crashed", "storage node crashed", "client crashed",
    "metadata replica crashed", "crash inside a step", "power cut", "owner paused", "process paused", "stuck write",
    "topic taken from a live owner", "fence split",
    "restart after a fence", "owner slept long", "snapshot unreachable",
    "wiped while recovering", "session expired under a live owner", "unsynced writes lost",
    "torn tail", "storage node crashed with unsynced recovery", "storage node wiped", "snapshot spoiled",
    "lost reply, applied", "lost reply, not applied", "lost reply, applied late", "stale read", "store stalled",
    "store call held by a stall", "trim wanted", "ledger deleted",
    "page written", "page read", "page deleted", "ledger seems to be gone",
    "ledger deleted on a node", "ledger record lost",
    "ledger kept without a record", "unload", "deduplication switched", "stale id sent",
    "stale ids among others sent", "ids wasted",
    "name taken without fencing", "openings slow", "openings delayed", "opening asked again", "opening withdrawn",
)  # fmt: skip
STORAGE_FAULTS = (
    "disk replaced in turn", "disk not replaced, because a ledger needs it", "storage node flaps",
    "storage node returned during its replacement", "hole in a directory", "hole in a directory of idle topics",
    "fence lost in a hole", "entries of an open ledger lost in a hole", "entries spoiled",
    "entries spoiled everywhere", "only holder of entries away", "sound copies differ", "old backup restored",
    "review of an old backup", "ledger record restored", "power cut during a repair", "joining storage node crashed",
    "directory of the past", "directory of the past, marked", "start of the past", "start interrupted",
    "entries vanished", "copy of a directory started", "copy of a directory refused", "older store",
    "older store refused",
)  # fmt: skip
REPAIR = (
    "repair begun", "repair whole", "repair waiting", "repair stuck", "repair lost", "repair frozen", "repair gone",
    "repair target_failed", "entries copied", "limbo of a ledger ended", "owner asked to roll",
    "topic handed over to end a ledger",
)  # fmt: skip
VERDICTS = (
    "answer STORED", "answer DUPLICATE", "answer DUPLICATE at unknown position", "answer stale_sequence",
    "answer STALE_SEQUENCE at unknown position",
    "content is the same", "content differs",
    "answer BELOW_MARK at unknown position", "producer failed: producer_fenced",
    "producer failed: producer_busy", "stranger's batch: sequence_gap",
    "stranger's batch: invalid_batch",
    "stranger refused: unknown_producer", "session ended: producer_fenced", "session ended: session_ended",
    "session ended: not_owner", "ids read from an entry",
)  # fmt: skip
QUESTIONS = (
    "question answered", "owner proved by fences", "owner proved by the record", "owner refuted by a fence",
    "answer of a lower epoch refused",
)  # fmt: skip
ACKS = ("change settled", "change dropped")
CONSUMERS = (
    "consumer crashed", "consumer paused", "consumer cut off", "subscription deleted", "stale route of a consumer",
    "trimmed", "trimmed by retention", "messages evicted", "sought", "dead letter", "message forgotten",
    "cumulative acknowledgement", "cumulative acknowledgement ends early", "ack durable", "nack durable",
    "ack in memory", "dispatch paused", "report DeliverMessages", "report RecallMessages", "report ConsumerActive",
    "report EndConsumer", "ack refused: stale_seek_epoch", "ack refused: subscription_gone",
    "consumer failed: subscription_gone", "consumer failed: consumer_busy", "stream waits for room", "room returned",
)  # fmt: skip
EFFECTS = (
    "store crashes", "store forgets", "store aborts", "commit not answered", "effects claimed", "effects rewound",
    "effects again: deadline_exceeded", "effect applied", "effect filtered", "gap checked", "redo wanted",
)  # fmt: skip
LEASES = (
    "clock jumped", "lease left alone", "holder became a zombie", "holder was idle", "leased anew", "leased again",
    "leased renewed", "lease asked for again", "lease again refused: producer_expired",
    "lease renewed refused: producer_expired", "lease renewed refused: producer_fenced",
    "producer failed: producer_expired",
)  # fmt: skip
DOORS = (
    "door crashed", "door stalled", "door cut off", "client of a door crashed", "client of a door slept",
    "connection left", "connection left half-open", "producer comes back", "producer came back",
    "producer closed by its door", "PRODUCER sent again on its connection", "PRODUCER refused: PRODUCER_BUSY",
    "PRODUCER refused: PRODUCER_FENCED after its creation",
    "PRODUCER refused: PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION after its creation",
    "session superseded", "name wanted", "name held", "name kept", "name taken from a silent holder",
    "door drops a silent client", "door stops reading", "SEND failed",
    "batch STORED", "batch SAME_BATCH", "batch PARTLY_NEW", "batch OTHER_BATCHES", "batch UNVERIFIED", "batch STALE",
    "receipt without a place", "application goes on behind what is stored",
)  # fmt: skip
HEADS = ("ledger with a head",)
RESTORES = (
    "store lost", "store beside the former one", "restore committed", "restore refused", "performer fenced",
    "era raised", "process moved to the new era", "owner of a former era ended", "question of a former era",
    "restore with a copy", "storage node cut off from restorers", "era joined late", "store lost in a failed write",
    "deletion of a topic answered", "deleted topic released",
    "two restores", "lost store returned", "storage node waits in a higher era",
)  # fmt: skip
MARKS = (
    "takeover",
    "SnapshotTaken",
    "batches forgotten",
    "CursorRecoveryTimedOut",
    "AckQuorumLost",
    "TopicDeposed",
    "TopicClosed",
    "owner suspected",
    "entry read",
)


@pytest.mark.parametrize("what", FAULTS + STORAGE_FAULTS + REPAIR + VERDICTS + QUESTIONS + ACKS + MARKS)
def test_sweep_reaches_each_condition(what: str) -> None:
    """Each occurs at least three times, so that a small change of the schedule does not lose it."""
    assert counts(0, ACK_SEEDS).get(what, 0) >= 3


@pytest.mark.parametrize("what", CONSUMERS)
def test_sweep_of_consumers_reaches_each_condition(what: str) -> None:
    """The same in the runs with consumers."""
    assert counts(CONSUMER_SEEDS).get(what, 0) >= 3


@pytest.mark.parametrize("what", EFFECTS)
def test_sweep_of_effects_reaches_each_condition(what: str) -> None:
    """The same in the runs whose messages take effect in a store."""
    assert counts(EFFECT_SEEDS).get(what, 0) >= 3


@pytest.mark.parametrize("what", LEASES)
def test_sweep_of_leases_reaches_each_condition(what: str) -> None:
    """The same in the runs in which ids are leased."""
    assert counts(LEASE_SEEDS).get(what, 0) >= 3


@pytest.mark.parametrize("what", DOORS)
def test_sweep_of_doors_reaches_each_condition(what: str) -> None:
    """The same in the runs with doors."""
    assert counts(DOOR_SEEDS).get(what, 0) >= 3


@pytest.mark.parametrize("what", HEADS + RESTORES)
def test_sweep_of_heads_reaches_each_condition(what: str) -> None:
    """The same in the runs whose ledgers begin with heads, and whose records are restored."""
    assert counts(RESTORE_SEEDS).get(what, 0) >= 3
