"""JOIN gives the records that were there, whatever happened before ZooKeeper was lost."""

from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import Era
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.ledger.quorum import missing_is_certain
from oncelog.core.rebuild.difference import difference
from oncelog.core.rebuild.join import join
from oncelog.core.rebuild.result import Asked, CopiedRecords, Rebuilt
from oncelog.core.rebuild.sources import Inventory
from tests.core.rebuild.live_world import ACKS, DEDUP, LOG, NODES, PAGES, TOPIC, LiveWorld

ERA = Era(2, "f" * 32)
QUORUMS = [(3, 2), (2, 2), (3, 3), (5, 3), (1, 1)]


def act(world: LiveWorld, rng: Random) -> None:
    """One of the things that happen to a topic."""
    purpose = rng.choice([LOG, LOG, *LedgerPurpose])
    actions: list[Callable[[LedgerPurpose], None]] = [
        world.write, world.write, world.write, world.roll, world.roll, world.fail, world.take_over, world.close,
        world.trim if purpose is not DEDUP else world.write,
        lambda _: world.repair(), lambda _: world.repair(partial=True), lambda _: world.to_page(),
    ]  # fmt: skip
    rng.choice(actions)(purpose)


def rebuilt(world: LiveWorld, inventories: list[Inventory], copied: CopiedRecords | None = None) -> Rebuilt:
    asked = {inventory.node for inventory in inventories}
    absent = tuple(node for node in NODES if node not in asked)
    return join(inventories, world.noted, copied, Asked(absent, world.ack_quorum), ERA, PAGES, now_ms=1)


def check_law(world: LiveWorld, inventories: list[Inventory], result: Rebuilt) -> None:
    """The records are those that were there, and no acknowledged entry can be taken for one that was not."""
    assert (result.reviews, difference(result, world.records, world.noted.names)) == ((), [])
    assert result.given_up == {}
    for record in (record for topic in result.topics.values() for record in topic.ledgers):
        asked = [each for each in inventories if each.node in record.members]
        for entry_id in map(EntryId, range(world.acked(record.ledger_id))):
            if record.state is LedgerState.OPEN:
                negatives = sum(lacks(each, record.ledger_id, entry_id) for each in asked)
                quorums = {"write_quorum": record.write_quorum, "ack_quorum": record.ack_quorum}
                assert not missing_is_certain(negatives, **quorums), (record, entry_id)
            else:
                assert any(holds(each, record.ledger_id, entry_id) for each in asked), (record, entry_id)


def holds(inventory: Inventory, ledger_id: LedgerId, entry_id: EntryId) -> bool:
    held = inventory.ledgers.get(ledger_id)
    return held is not None and any(run.first <= entry_id <= run.last for run in held.runs)


def lacks(inventory: Inventory, ledger_id: LedgerId, entry_id: EntryId) -> bool:
    """For certain: neither limbo nor damage, and a copy that was erased proves nothing."""
    held = inventory.ledgers.get(ledger_id)
    if held is None:
        return ledger_id >= inventory.limbo_below
    return held.state is CopyState.HELD and not holds(inventory, ledger_id, entry_id)


def missing_of(world: LiveWorld, rng: Random) -> list[tuple[Incarnation, str]]:
    """As many nodes as the bound allows, in any way."""
    nodes = rng.sample(NODES, rng.randint(0, world.ack_quorum - 1))
    return [(node, rng.choice(["absent", "limbo", "damaged"])) for node in nodes]


@given(st.randoms(use_true_random=False), st.sampled_from(QUORUMS), st.integers(1, 40))
def test_join_gives_the_records_that_were_there(rng: Random, quorums: tuple[int, int], steps: int) -> None:
    """From heads and notes alone, while fewer nodes than Qa are missing."""
    world = LiveWorld(rng, write_quorum=quorums[0], ack_quorum=quorums[1])
    for _ in range(steps):
        act(world, rng)
    inventories = world.inventories(missing_of(world, rng))
    check_law(world, inventories, rebuilt(world, inventories))


@given(st.randoms(use_true_random=False), st.sampled_from(QUORUMS), st.integers(0, 15), st.integers(0, 20))
def test_join_with_a_copy_gives_them_too(rng: Random, quorums: tuple[int, int], before: int, after: int) -> None:
    """The copy may be older or newer than anything else."""
    world = LiveWorld(rng, write_quorum=quorums[0], ack_quorum=quorums[1], heads=False)
    for _ in range(before):
        act(world, rng)
    world.finalize()
    copied = world.records
    for _ in range(after):
        act(world, rng)
        if rng.random() < 0.1:
            copied = world.records
    inventories = world.inventories(missing_of(world, rng))
    check_law(world, inventories, rebuilt(world, inventories, copied))


@given(st.randoms(use_true_random=False), st.sampled_from(QUORUMS), st.integers(1, 30))
def test_what_more_missing_nodes_may_have_is_told(rng: Random, quorums: tuple[int, int], steps: int) -> None:
    """Beyond the bound acknowledged entries may be in no list: then the topic owes GivenUp, or an operator decides."""
    world = LiveWorld(rng, write_quorum=quorums[0], ack_quorum=quorums[1])
    for _ in range(steps):
        act(world, rng)
    missing = [(node, rng.choice(["absent", "limbo"])) for node in rng.sample(NODES, rng.randint(1, len(NODES)))]
    result = rebuilt(world, world.inventories(missing))
    check_told(world, result)


def check_told(world: LiveWorld, result: Rebuilt) -> None:
    """Every acknowledged entry of both chains is listed, or what may be lost is told."""
    topic = result.topics[TOPIC]
    if result.reviews or topic.given_up is not None:
        return
    records = {record.ledger_id: record for record in topic.ledgers}
    for ledger_id in (each for purpose in (LOG, ACKS) for each in world.listed(purpose)):
        if world.acked(ledger_id) > world.ledgers[ledger_id].first_of_chain:
            record = records[ledger_id]
            assert record.state is LedgerState.OPEN or record.end >= world.acked(ledger_id) - 1
