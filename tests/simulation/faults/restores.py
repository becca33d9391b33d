"""Faults of the whole store: its records are lost, or an older ensemble stays beside a new one, and they are restored
from the storage nodes while everything goes on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults


def lose_store(faults: "Faults") -> None:
    """Once in a run."""
    eras, rng, world = faults.cluster.eras, faults.world.rng, faults.world
    if eras.restorers:
        return
    lost = rng.random() < 0.4
    world.count("store lost" if lost else "store beside the former one")
    eras.restore(lost=lost, copied=None, performers=rng.choice((1, 2, 2)))
