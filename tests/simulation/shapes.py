"""How large the cluster of a run is, what its limits are, and which history it follows: drawn from the seed."""

import random
from dataclasses import dataclass, field, replace

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import OnConflict
from oncelog.core.publishing.producers import RECENT_BYTES_MAX
from oncelog.core.retention.paging import PageSettings
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import TopicSettings
from tests.simulation.clients.lease_client import LeaseShape, draw_lease_shape
from tests.simulation.clients.producer_client import Input
from tests.simulation.consumers.consumption import ConsumerShape, draw_consumer_shape
from tests.simulation.doors.entries import DoorShape, draw_door_shape
from tests.simulation.world import World

#: how long a name is left to its holder after a takeover
RETURN_TICKS = 1500
#: how long a takeover waits for the recovery of the cursor's last ledger
CURSOR_TICKS = 400
#: How many seeds a kind of runs has. Those from 0 on publish and read.
KIND_SEEDS = 1_000_000
#: In the runs from this seed on, before those, producers are clients of Kafka, which count in epochs.
EPOCH_SEEDS = 900_000
#: The runs from this seed on change subscriptions, too.
ACK_SEEDS = 1_000_000
#: The runs from this seed on have consumers instead.
CONSUMER_SEEDS = 2_000_000
#: In the runs from this seed on, messages of consumers take effect in a store.
EFFECT_SEEDS = 3_000_000
#: In the runs from this seed on, producers lease their ids, and producers expire.
LEASE_SEEDS = 4_000_000
#: In the runs from this seed on ZooKeeper's records are restored.
RESTORE_SEEDS = 5_000_000
#: In the runs from this seed on clients of Pulsar publish through doors.
DOOR_SEEDS = 6_000_000
#: The first seed of each kind.
KINDS = (0, ACK_SEEDS, CONSUMER_SEEDS, EFFECT_SEEDS, LEASE_SEEDS, RESTORE_SEEDS, DOOR_SEEDS)
#: How long faults are injected.
FAULTY_TICKS = 4000
#: After the last fault: producers open again after a second at most, owners take over after a session's length, and
#: every listed ledger is whole.
HEALED_TICKS = 20_000
#: With doors, a holder of a name may be silent for 8 s. Of clients that are gone, each may get the name before one that
#: lives, until its door has heard nothing of it for a minute.
FAULTY_TICKS_OF_DOORS, HEALED_TICKS_OF_DOORS = 16_000, 90_000
#: The fault of which two operators restore the records at the same time, and how many of those runs have it.
SECOND_RESTORE, SECOND_RESTORES = "second restore", 0.3
#: Between two ticks of an idle topic.
IDLE_TICKS = 400


@dataclass(slots=True)
class Shape:
    """How large a run's cluster is."""

    owners: int = 2
    nodes: int = 3
    metadata: int = 2
    topics: int = 1
    producers: int = 3
    readers: int = 1
    questioners: int = 1
    #: ticks between two batches of a producer
    pace: tuple[int, int] = (4, 60)
    settings: TopicSettings = field(default_factory=TopicSettings)
    #: the inputs of each topic, and at how many places each is fed; None: drawn
    inputs: list[tuple[Input, int]] | None = None
    #: the only faults to inject, on a good network; empty: they are drawn
    only_faults: tuple[str, ...] = ()
    #: whether the metadata replicas repair, as in every fifth run; impatient: absent nodes are soon replaced
    repair: bool = False
    impatient: bool = False
    #: whether changes of subscriptions are appended to the ack logs
    acks: bool = False
    #: of the consumers of each topic; None: it has none
    consumers: ConsumerShape | None = None
    #: of the programs that lease producer ids; None: there are none, and no producer expires
    leases: LeaseShape | None = None
    #: whether ZooKeeper's records are lost and restored
    restores: bool = False
    #: of doors and their clients; None: there are none
    doors: DoorShape | None = None
    faulty_ticks: int = FAULTY_TICKS
    healed_ticks: int = HEALED_TICKS

    @property
    def deletes_topic(self) -> bool:
        """Whether a topic may be deleted, and another one get its name."""
        return self.restores and self.topics > 1

    @staticmethod
    def on_conflict(world: World, source: Input) -> OnConflict:
        """The producers of some runs fence nobody, by a separate generator, so that other runs do not change."""
        shy = random.Random(f"{world.seed}/on_conflict").random() < 0.3
        return OnConflict.REFUSE if shy else source.on_conflict


def small_settings(world: World) -> TopicSettings:
    """Limits so low that a short run meets all of them."""
    rng = world.rng
    return TopicSettings(
        ledger_bytes_max=rng.choice((1500, 1 << 20)),
        ledger_entries_max=rng.choice((4, 8, 20, 1000)),
        ledger_age_max_ms=rng.choice((700, 2500, 100_000)),
        add_timeout_ms=rng.choice((80, 200)),
        rejoin_after_ms=rng.choice((100, 500)),
        tick_ms=80,
        retry_ms=120,
        return_grace_ms=RETURN_TICKS,
        cursor_timeout_ms=CURSOR_TICKS,
        cursor_timeout_ms_max=CURSOR_TICKS,
        openings_wait_max_ms=_openings_wait(world),
        snapshot=SnapshotSettings(
            entries_max=rng.choice((3, 3, 8, 25)),
            interval_ms=rng.choice((300, 2000)),
            gap_ms=rng.choice((10, 100)),
            deltas_max=rng.choice((0, 0, 1, 3)),
            idle_after_ms=(idle_after_ms := rng.choice((400, 100_000))),
            # Half of the runs forget batches all the time.
            recent_bytes_max=600 if idle_after_ms == 400 else RECENT_BYTES_MAX,
        ),
    )


def _openings_wait(world: World) -> int:
    """Requests to open give up in some runs, by a separate generator, so that other runs do not change."""
    return 400 if random.Random(f"{world.seed}/openings wait").random() < 0.15 else 1 << 40


def is_drawn(seed: int, name: str, probability: float) -> bool:
    """Whether the run of this seed has it: by a separate generator, so that what is new changes neither the runs that
    do not have it nor the first seeds of the planted bugs that they find."""
    return random.Random(f"{seed}/{name}").random() < probability


def draw_shape(world: World) -> Shape:
    """Lists of ledgers have tiny pages in half of the runs, by a separate generator, so that others do not change."""
    shape = _drawn_for(world)
    if random.Random(f"{world.seed}/pages").random() < 0.5:
        return replace(shape, settings=replace(shape.settings, pages=PageSettings(ledgers=3, inline_max=4)))
    return shape


def _drawn_for(world: World) -> Shape:
    if world.seed >= DOOR_SEEDS:
        return _with_doors(world)
    if LEASE_SEEDS <= world.seed < RESTORE_SEEDS:
        return _with_leases(world)
    shape = _draw_shape(world)
    if world.seed < ACK_SEEDS:
        # Here idle topics tick as often as others, which is the harder case for rolls and snapshots.
        return replace(shape, settings=replace(shape.settings, idle_tick_ms=shape.settings.tick_ms))
    rng = random.Random(f"{world.seed}/acks")
    if CONSUMER_SEEDS <= world.seed < RESTORE_SEEDS:
        shape = _with_consumers(world, rng)
    acks = replace(
        shape.settings.acks, ledger_entries_max=rng.choice((3, 10, 1000)), ledger_age_max_ms=rng.choice((700, 100_000))
    )  # fmt: skip
    snapshot = shape.settings.snapshot
    if shape.consumers is None and random.Random(f"{world.seed}/steps").random() < 0.3:
        snapshot = replace(snapshot, step_producers=1)  # each snapshot is encoded in many steps
    settings = replace(shape.settings, acks=acks, snapshot=snapshot, idle_tick_ms=IDLE_TICKS)
    if shape.consumers is not None and shape.consumers.ack_state_bytes_max is not None:
        settings = replace(settings, ack_state_bytes_max=shape.consumers.ack_state_bytes_max)
    shape = replace(shape, acks=shape.consumers is None, settings=settings)
    return shape if world.seed < RESTORE_SEEDS else _with_restores(world, shape)


def _with_restores(world: World, shape: Shape) -> Shape:
    """Only with an ack quorum of three, half of four nodes could do for a restore, if more were not needed (hazard
    two-restores). Then no directory is lost for ever, because a last ledger needs all its members."""
    shape = replace(shape, restores=True)
    drawn = is_drawn(world.seed, SECOND_RESTORE, SECOND_RESTORES) and is_drawn(world.seed, "three of four", 0.5)
    if not drawn or shape.repair:
        return shape
    return replace(shape, nodes=4, settings=replace(shape.settings, ack_quorum=3))


def _with_consumers(world: World, rng: random.Random) -> Shape:
    """Messages come during all the faults, nobody else reads them, and the log can be trimmed often."""
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(rng.randint(25, 55))), 1) for n in range(2)]
    settings = small_settings(world)
    snapshot = replace(settings.snapshot, entries_max=1, interval_ms=100, gap_ms=10, deltas_max=0)
    settings = replace(settings, ledger_entries_max=rng.choice((2, 4, 20)), snapshot=snapshot)
    return Shape(
        owners=rng.choice((2, 3)), metadata=1, readers=0, questioners=0, inputs=inputs, pace=(40, 300),
        settings=settings,
        consumers=replace(draw_consumer_shape(world.seed), effects=world.seed >= EFFECT_SEEDS),
    )  # fmt: skip


def _with_leases(world: World) -> Shape:
    """Beside the programs with leases one other producer, which may have a lifetime, too. Holders have little time to
    come back after a takeover, so that ids expire between takeovers."""
    rng = world.rng
    settings = replace(small_settings(world), return_grace_ms=rng.choice((150, 500)))
    return Shape(
        owners=rng.choice((2, 3)), metadata=1, producers=1, readers=0, questioners=0, pace=(30, 250),
        settings=settings, leases=draw_lease_shape(world.seed),
    )  # fmt: skip


def _with_doors(world: World) -> Shape:
    """Clients of Pulsar alone, which send during all the faults."""
    return Shape(
        owners=2, metadata=1, producers=0, readers=0, questioners=0, pace=(100, 900), settings=small_settings(world),
        doors=draw_door_shape(world.seed), faulty_ticks=FAULTY_TICKS_OF_DOORS,
        healed_ticks=HEALED_TICKS_OF_DOORS,
    )  # fmt: skip


def _draw_shape(world: World) -> Shape:
    rng = world.rng
    if world.seed % 100 in HISTORIES:
        return HISTORIES[world.seed % 100]()
    if rng.random() < 0.06:
        return restless_shape()
    return Shape(
        owners=rng.choice((2, 2, 3)), nodes=rng.choice((3, 3, 4)), metadata=rng.choice((1, 2)),
        topics=rng.choice((1, 1, 2)), producers=rng.choice((2, 3)), readers=rng.choice((0, 1)),
        settings=small_settings(world), repair=world.seed % 5 == 4, impatient=world.seed % 10 == 9,
    )  # fmt: skip


def _history(
    fault: str, *faults: str, nodes: int = 3, entries: int = 100, ledger_entries_max: int = 40, impatient: bool = False
) -> Shape:
    """One topic with two producers, on a good network, with these faults only."""
    settings = TopicSettings(
        add_timeout_ms=200, tick_ms=80, retry_ms=120, rejoin_after_ms=300, ledger_entries_max=ledger_entries_max,
        return_grace_ms=RETURN_TICKS, cursor_timeout_ms=CURSOR_TICKS, cursor_timeout_ms_max=CURSOR_TICKS,
    )  # fmt: skip
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(entries)), 1) for n in range(2)]
    return Shape(
        nodes=nodes, readers=0, settings=settings, inputs=inputs, only_faults=(fault, *faults), repair=True,
        impatient=impatient,
    )  # fmt: skip


def restless_shape() -> Shape:
    """One topic that stores, rolls and trims all the time, and an owner that is paused meanwhile."""
    snapshot = SnapshotSettings(entries_max=3, interval_ms=200, gap_ms=10, deltas_max=0, idle_after_ms=100_000)
    settings = TopicSettings(
        ledger_entries_max=6,
        add_timeout_ms=200,
        tick_ms=80,
        retry_ms=120,
        rejoin_after_ms=300,
        snapshot=snapshot,
        return_grace_ms=RETURN_TICKS,
        cursor_timeout_ms=CURSOR_TICKS,
        cursor_timeout_ms_max=CURSOR_TICKS,
    )
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(150)), 1) for n in range(3)]
    return Shape(owners=3, readers=0, settings=settings, inputs=inputs, only_faults=("long sleep",))


#: {seed modulo 100: the shape of its run}: histories of repair that random runs hardly meet
HISTORIES = {
    14: lambda: _history("differing copies", "spoiled entries", "storage node crash", ledger_entries_max=8),
    24: lambda: _history("hole while recovering", entries=250, ledger_entries_max=12),
    34: lambda: _history("late hole", entries=20),
    44: lambda: _history("restored record", nodes=5, impatient=True),
    49: lambda: _history("fence in a hole", entries=400),
    79: lambda: _history("target crash", "disk replacement", nodes=4, entries=200, ledger_entries_max=8),
    74: lambda: _history("directory of the past", entries=250, ledger_entries_max=12),
    94: lambda: _history("copy of a directory", entries=250, ledger_entries_max=12),
    69: lambda: _history("entries vanish", ledger_entries_max=8),
    84: lambda: _history("older store", nodes=5, entries=200, ledger_entries_max=8),
    54: lambda: _history("one holder", "spoiled everywhere", ledger_entries_max=8),
}
