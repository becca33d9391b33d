"""Faults of runs with leases: clocks that jump, and holders that are away until their ids expire."""

from typing import TYPE_CHECKING

from tests.simulation.consumers.consumption import HOUR_MS

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults


def jump_clock(faults: "Faults") -> None:
    """The clock of an owner jumps, forward or back. No lease may become shorter (hazard minimum-lifetime-shortened)."""
    rng, cluster = faults.world.rng, faults.cluster
    faults.world.count("clock jumped")
    cluster.owner_parts.skews[rng.choice(list(cluster.owners))] = rng.choice((0, 500, 5_000, HOUR_MS, -5_000, -HOUR_MS))


def lapse(faults: "Faults") -> None:
    """A holder is away for about a lifetime: it crashes, or it is paused and its stream breaks, so that it wakes as a
    zombie. Or it does nothing for longer, and its stream breaks later."""
    rng = faults.world.rng
    holders = [each for each in faults.cluster.lease_clients if each.alive and not each.paused and each.leased]
    if not holders:
        return
    client = rng.choice(holders)
    lifetime_ms = min(client.lifetime_ms, 800)
    ticks, how = int(lifetime_ms * rng.uniform(0.3, 4)), rng.random()
    if how < 0.5:
        faults.world.count("lease left alone")
        faults.crash(client, ticks)
        return
    stream = None if client.link is None else client.link.stream
    idle_ticks = 0
    if how < 0.75:
        faults.world.count("holder became a zombie")
    else:
        faults.world.count("holder was idle")
        idle_ticks = int(lifetime_ms * rng.uniform(0.5, 3))
    faults.pause(client, ticks + idle_ticks)
    if stream is not None:
        faults.world.after(idle_ticks, f"{client.name} loses its stream", stream.sever)
