"""Faults of runs with doors: doors that die and stall, clients that die, sleep and leave their connections."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.doors.doors import Doors
    from tests.simulation.faults.faults import Faults


def _doors(faults: "Faults") -> "Doors":
    assert faults.cluster.doors is not None, "a kind of fault of runs with doors"
    return faults.cluster.doors


def crash_doors(faults: "Faults") -> None:
    """One door, or all of them, one after the other."""
    rng, servers = faults.world.rng, _doors(faults).servers
    faults.world.count("door crashed")
    if rng.random() < 0.7:
        faults.crash(rng.choice(servers), rng.randint(10, 1500))
        return
    for number, door in enumerate(servers):
        faults.world.after(1 + number * 200, f"{door.name} is restarted", lambda d=door: faults.crash(d, 100))  # type: ignore[misc]


def stall(faults: "Faults") -> None:
    """A door, perhaps with all of its clients."""
    rng, doors = faults.world.rng, _doors(faults)
    faults.world.count("door stalled")
    door, ticks = rng.choice(doors.servers), rng.choice((300, 1500, 4000, 10_000))
    faults.pause(door, ticks)
    if rng.random() < 0.4:
        for client in [client for client in doors.clients if client.end is not None and client.end.door is door]:
            faults.pause(client, ticks)


def crash_client(faults: "Faults") -> None:
    faults.world.count("client of a door crashed")
    faults.crash(faults.world.rng.choice(_doors(faults).clients), faults.world.rng.randint(10, 2000))


def sleep(faults: "Faults") -> None:
    """For long enough to lose its name, or for less."""
    faults.world.count("client of a door slept")
    faults.pause(faults.world.rng.choice(_doors(faults).clients), faults.world.rng.choice((500, 3000, 7000, 12_000)))


def leave(faults: "Faults") -> None:
    """A client goes to another door, perhaps while its own stalls with all that was written to it."""
    rng = faults.world.rng
    client = rng.choice(_doors(faults).clients)
    if not client.alive or client.paused:
        return
    if client.end is not None and rng.random() < 0.6:
        door = client.end.door
        faults.pause(door, rng.choice((300, 1000, 3000)))
    client.post(rng.randint(1, 400), "leaves its door", client.leave)


def cut(faults: "Faults") -> None:
    """Between a door and a client, or a door and an owner; or a door from all owners, for long."""
    rng, cluster = faults.world.rng, faults.cluster
    faults.world.count("door cut off")
    door = rng.choice(_doors(faults).servers).name
    if rng.random() < 0.4:
        until = faults.world.now + rng.randint(2000, 9000)
        cluster.network.cuts.update({(door, owner): until for owner in cluster.owners})
        return
    other = rng.choice([*cluster.owners, *(client.name for client in _doors(faults).clients)])
    until = faults.world.now + rng.randint(50, 2500)
    for pair in rng.choice((((door, other),), ((other, door),), ((door, other), (other, door)))):
        cluster.network.cuts[pair] = until


#: (name, probability, fault, ticks between two of them)
DOOR_FAULTS = (
    ("door crash", 0.8, crash_doors, (800, 4000)),
    ("door stall", 0.8, stall, (800, 4000)),
    ("pulsar client crash", 0.8, crash_client, (800, 4000)),
    ("pulsar client sleep", 0.8, sleep, (1500, 6000)),
    ("connection left", 0.8, leave, (400, 3000)),
    ("door cut", 0.5, cut, (800, 4000)),
)
#: other faults of a third of the runs with doors
AROUND_DOORS = ("storage node crash", "metadata crash", "power cut", "clog", "store stall", "trim", "rot")
