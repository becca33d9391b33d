"""Flips bits in the segments of a storage node, as a disk does that returns wrong bytes."""

import random
from pathlib import Path

from oncelog_lab.failures import FaultMissed

#: Places of one fault.
FLIPS = 3


def flip_bits(segments: Path, seed: int) -> list[str]:
    """Flip FLIPS bits in the written part of the segments. Returns the places, as text. Raises FaultMissed."""
    chance = random.Random(f"bit rot {seed}")
    written = {path: len(path.read_bytes().rstrip(b"\0")) for path in sorted(segments.glob("*.seg"))}
    candidates = [path for path, size in written.items() if size]
    if not candidates:
        raise FaultMissed(f"{segments} has no segment with data")
    flipped = []
    for _ in range(FLIPS):
        path = chance.choice(candidates)
        at = chance.randrange(written[path])
        with path.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
        flipped.append(f"{path.name} at {at}")
    return flipped
