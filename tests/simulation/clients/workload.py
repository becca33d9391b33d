"""The inputs of a run: with holes and without, explicit and automatic ids, named and unnamed, some at two places.

Two places that use one name fence each other: each feeds the same input and takes the name from the other.
"""

import random

from oncelog.core.formats.entry import SequenceMode
from tests.simulation.clients.producer_client import Input


def make_inputs(rng: random.Random, producers: int) -> list[tuple[Input, int]]:
    """[(input, at how many places it is fed)]."""
    inputs: list[tuple[Input, int]] = []
    # Some runs store through all their faults, most are done earlier.
    lengths = (90, 160) if rng.random() < 0.15 else (15, 60)
    for number in range(producers):
        kind = rng.choice(("monotonic", "monotonic", "contiguous", "automatic", "unnamed"))
        name = None if kind == "unnamed" else f"producer {number}"
        places = 2 if name is not None and rng.random() < 0.35 else 1
        inputs.append((_make_input(rng, kind, name, lengths), places))
    return inputs


def _make_input(rng: random.Random, kind: str, name: str | None, lengths: tuple[int, int]) -> Input:
    count = rng.randint(*lengths)
    resumes = rng.random() < 0.5
    if kind != "monotonic":
        mode = SequenceMode.CONTIGUOUS if kind == "contiguous" or rng.random() < 0.3 else SequenceMode.MONOTONIC
        return Input(name, mode, range(count), automatic=kind in ("automatic", "unnamed"), resumes=resumes)
    span = count * rng.choice((1, 2, 3))
    ids = sorted(rng.sample(range(span), count))
    present = dict.fromkeys(ids)
    holes = [i for i in range(ids[0], ids[-1]) if i not in present]
    careless = 0.06 if rng.random() < 0.3 else 0.0
    # Without a draw, which would change all other runs.
    changes = not resumes and count % 4 == 0
    return Input(name, SequenceMode.MONOTONIC, ids, resumes=resumes, careless=careless, holes=holes, changes=changes)
