"""Rows that have to wait: they keep their order, and nothing that can go on waits with them."""

import random
from typing import Any

import pytest

from oncelog.core.sdk.producer.routing import partition_of
from oncelog_effects.core.outbox import relay as relay_module
from oncelog_effects.core.outbox.events import RelayEffect
from oncelog_effects.core.outbox.relay import OutboxRelay
from oncelog_effects.core.outbox.rows import RowHead
from tests.effects.core.outbox.world import TOPIC, Database, Log, Relay, run_until_idle

PAYMENTS = "public/default/payments"


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows of a look."""
    monkeypatch.setattr(relay_module, "LOOK_ROWS_MAX", 20)
    return 20


class HoldsByName(OutboxRelay):
    def _place_of(self, row: RowHead, waiting: set[str], effects: list[RelayEffect]) -> Any:
        return super()._place_of(row, set(), effects)


def stored_of_two_names(seed: int, partitions: int, rows: int, make: type[OutboxRelay]) -> bool:
    """Whether each stream has its rows in the order of their ids. A look leaves out one name of a topic, and the topic
    takes rows again before the look has ended."""
    chance = random.Random(seed)
    database, log = Database(), Log(partitions={TOPIC: partitions} if partitions else {})
    names = ["orders", TOPIC, *(f"orders-partition-{n}" for n in range(partitions))]
    wanted: dict[str, list[str]] = {}
    blocks = [chance.choice(names) for _ in range(5)]
    for n in range(5 * rows):
        name = blocks[n // rows] if chance.random() < 0.95 else chance.choice(names)
        key = b"%d" % chance.randrange(20)
        database.insert(f"{n}", name, key=key)
        stored = name.replace("orders", TOPIC) if "partition" in name else TOPIC
        if partitions and "partition" not in name:
            stored = f"{TOPIC}-partition-{partition_of(key, partitions)}"
        wanted.setdefault(stored, []).append(f"{n}")
    relay = Relay("only", database, log, make=make)
    relay.connect()
    for _ in range(300):
        if relay.due:
            relay.step(chance)
    run_until_idle(relay)
    assert not database.rows
    return {name: log.events(name) for name in wanted} == wanted


@pytest.mark.hazard("row-passed-under-another-name")
@pytest.mark.parametrize("make", [OutboxRelay, HoldsByName])
@pytest.mark.parametrize("partitions", [0, 3])
def test_names_of_one_topic_keep_one_order(partitions: int, make: type[OutboxRelay], short_looks: int) -> None:
    kept = [stored_of_two_names(seed, partitions, short_looks, make) for seed in range(60)]
    assert all(kept) == (make is OutboxRelay)


def test_any_number_of_topics_that_cannot_be_used_stops_no_other_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor do they if each of them has more rows than a look sees, and another topic has rows all the time."""
    monkeypatch.setattr(relay_module, "LOOK_ROWS_MAX", 100)
    database, log = Database(), Log()
    for n in range(520):
        log.down.add(f"public/default/down-{n}")
        for row in range(100 if n < 5 else 1):
            database.insert(f"waits {n} {row}", f"down-{n}")
    database.insert("order")
    relay = Relay("only", database, log)
    relay.connect()
    for n in range(20_000):
        if log.events():
            break
        if n % 10 == 0:
            database.insert(f"payment {n}", "payments")
        relay.step()
    assert log.events() == ["order"]
    log.down.clear()
    run_until_idle(relay, stop=lambda: not database.rows, steps_max=50_000)
    assert log.events("public/default/down-4") == [f"waits 4 {row}" for row in range(100)]


def test_topic_that_is_created_with_partitions_later_gets_its_rows() -> None:
    """It was missing, and could not be opened."""
    database, log = Database(), Log(down={TOPIC})
    database.insert("a")
    database.insert("b", "payments")
    relay = Relay("only", database, log)
    relay.connect()
    run_until_idle(relay, stop=lambda: log.events(PAYMENTS) == ["b"])
    log.partitions[TOPIC] = 2
    run_until_idle(relay, stop=lambda: not database.rows)
    assert log.events(f"{TOPIC}-partition-{partition_of(b'a', 2)}") == ["a"]
