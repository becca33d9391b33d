"""Faults that are injected while producers open: late answers, late ids, and clients that ask again meanwhile."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults


def slow_openings(faults: "Faults") -> None:
    """Delay answers and producer ids. Some producers open again, and all openings time out, some of them twice."""
    rng, cluster = faults.world.rng, faults.cluster
    faults.world.count("openings slow")
    until = faults.world.now + rng.randint(100, 900)
    cluster.owner_parts.ids_stalled_until = until
    for client in cluster.producers:
        for name in cluster.owners:
            cluster.network.clogs[name, client.name] = until
        if rng.random() < 0.5:
            faults.crash(client, rng.randint(1, 60))
        elif client.link is not None:
            client.link.stream.sever()
        for _ in range(rng.choice((1, 2, 3))):
            faults.world.after(rng.randint(30, 900), f"{client.name} loses patience", client.lose_patience)
