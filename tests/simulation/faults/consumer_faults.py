"""Faults of runs with consumers: they crash, pause and are cut off, and subscriptions are deleted."""

from typing import TYPE_CHECKING

from tests.simulation.consumers.client import ConsumerClient

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults


def crash(faults: "Faults") -> None:
    rng = faults.world.rng
    faults.world.count("consumer crashed")
    faults.crash(rng.choice(_consumers(faults)), rng.randint(20, 1_500))


def pause(faults: "Faults") -> None:
    rng = faults.world.rng
    faults.world.count("consumer paused")
    faults.pause(rng.choice(_consumers(faults)), rng.randint(100, 2_500))


def cut(faults: "Faults") -> None:
    rng, cluster = faults.world.rng, faults.cluster
    names = [rng.choice(list(cluster.owners)), rng.choice(_consumers(faults)).name]
    rng.shuffle(names)
    faults.world.count("consumer cut off")
    cluster.network.cuts[names[0], names[1]] = faults.world.now + rng.randint(50, 800)


def delete_subscription(faults: "Faults") -> None:
    for topic_id, consumption in faults.cluster.consumption.items():
        for owner in faults.cluster.owners.values():
            shell = owner.topics.get(topic_id)
            if shell is not None and owner.alive and not owner.paused and shell.core.serving is not None:
                shell.consumers.delete(faults.world.rng.choice(consumption.clients).settings.subscription)


def _consumers(faults: "Faults") -> list[ConsumerClient]:
    return [client for each in faults.cluster.consumption.values() for client in each.clients]
