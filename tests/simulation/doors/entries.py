"""What clients of Pulsar send in a run: inputs, batches, and their entries.

PLAIN      batches of any borders, with an id for each message; ids may have holes
KEYED      two batches of one key each from every few messages, as Java's key-based builder makes them: units that
           are known by their highest id. A replay has the same borders
ENCRYPTED  units of any borders. If the log refuses one, the application goes on behind what is stored
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from crc32c import crc32c

from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.verdicts import Ids
from tests.core.pulsar_entries import Sent, batched, encrypted, of_one_key, plain, summed

#: How often an application sends an id that lies between stored ones, if it is careless, or one message again.
CARELESS, REPEATS = 0.06, 0.1
_KEYED_TOGETHER = 5


class Packing(Enum):
    PLAIN = "plain"
    KEYED = "keyed"
    ENCRYPTED = "encrypted"


@dataclass(slots=True)
class PulsarInput:
    """The input that one producer name stores. family: the library of each place that feeds it.

    resumes: an application goes on behind the last id that it is told. holes: ids that the input never has.
    """

    name: str
    packing: Packing
    ids: Sequence[int]
    families: tuple[ClientFamily, ...]
    resumes: bool = False
    holes: Sequence[int] = ()
    careless: float = 0.0
    repeats: float = 0.0
    #: some application has a receipt for the whole input
    complete: bool = False

    @property
    def alone(self) -> bool:
        """Whether only one program feeds it."""
        return len(self.families) == 1


@dataclass(frozen=True, slots=True)
class DoorShape:
    """Of a run with doors. pending_bytes_max: that a session of a door keeps. budget_bytes: of SENDs of a connection;
    a door keeps twice as many."""

    doors: int
    inputs: tuple[PulsarInput, ...]
    pending_bytes_max: int
    budget_bytes: int


@dataclass(slots=True)
class Batch:
    """One SEND. request: counts those of a client. numbers, values: what the log shows of it: of a unit its last id,
    and the entry as a whole."""

    ids: Sequence[int]
    entry: bytes
    sent: Ids
    unit: bool
    values: Sequence[bytes]
    stale: bool = False
    request: int = 0

    @property
    def numbers(self) -> Sequence[int]:
        return self.ids[-1:] if self.unit else self.ids

    @property
    def borders(self) -> tuple[int, int, int]:
        """First and last id, and count, as the log has them."""
        return self.sent.sequence_id, self.sent.last, len(self.ids)


def draw_door_shape(seed: int) -> DoorShape:
    """Two names; the first one is fed at two places in most runs."""
    rng = random.Random(f"{seed}/door shape")
    inputs = [_draw_input(rng, f"pulsar {n}", rng.choice((1, 2, 2)) if n == 0 else 1) for n in range(2)]
    return DoorShape(
        doors=rng.choice((2, 3)),
        inputs=tuple(inputs),
        pending_bytes_max=rng.choice((300, 10_000)),
        budget_bytes=rng.choice((400, 100_000)),
    )


def _draw_input(rng: random.Random, name: str, places: int) -> PulsarInput:
    packing = rng.choice((Packing.PLAIN, Packing.PLAIN, Packing.KEYED, Packing.ENCRYPTED))
    count = rng.randint(15, 45)
    if packing is Packing.KEYED:
        return PulsarInput(name, packing, range(1, count + 1), (ClientFamily.JAVA,) * places)
    families = (ClientFamily.JAVA, ClientFamily.CPP, ClientFamily.CPP, ClientFamily.UNKNOWN)
    ids = sorted(rng.sample(range(1, count * rng.choice((1, 2)) + 1), count))
    present = dict.fromkeys(ids)
    holes = [i for i in range(ids[0], ids[-1]) if i not in present]
    is_plain = packing is Packing.PLAIN
    return PulsarInput(
        name,
        packing,
        ids,
        tuple(rng.choice(families) for _ in range(places)),
        resumes=rng.random() < 0.5,
        holes=holes,
        careless=CARELESS if is_plain and rng.random() < 0.4 else 0.0,
        repeats=REPEATS if is_plain and rng.random() < 0.5 else 0.0,
    )


def _message(source: PulsarInput, number: int) -> Sent:
    return Sent(number, f"{source.name}/{number}".encode())


def next_batches(source: PulsarInput, at: int, rng: random.Random) -> tuple[list[Batch], int]:
    """What the application sends next, from this message of its input on; and the message behind it."""
    if source.packing is Packing.KEYED:
        ids = source.ids[at : at + _KEYED_TOGETHER]
        keys = [part for part in (ids[::2], ids[1::2]) if part]
        batches = [_of_one_key(source, part) for part in keys]
        return sorted(batches, key=lambda batch: batch.ids[-1]), at + len(ids)
    ids = source.ids[at : at + rng.randint(1, 4)]
    batch = _secret(source, ids) if source.packing is Packing.ENCRYPTED else _open(source, ids)
    return [batch], at + len(ids)


def single_batch(source: PulsarInput, number: int, *, stale: bool) -> Batch:
    """One message alone. stale: under an id that the input never has."""
    batch = _open(source, [number])
    batch.stale = stale
    return batch


def _open(source: PulsarInput, ids: Sequence[int]) -> Batch:
    messages = [_message(source, number) for number in ids]
    values = [each.value or b"" for each in messages]
    if len(ids) == 1:
        return Batch(ids, _as_sent(plain(messages[0], producer=source.name)), Ids(ids[0]), False, values)
    return Batch(ids, _as_sent(batched(messages, producer=source.name)), Ids(ids[0], ids[-1]), False, values)


def _of_one_key(source: PulsarInput, ids: Sequence[int]) -> Batch:
    entry = _as_sent(of_one_key([_message(source, number) for number in ids], producer=source.name))
    unit = len(ids) > 1
    values = [entry] if unit else [_message(source, ids[0]).value or b""]
    return Batch(ids, entry, Ids(ids[-1]), unit, values)


def _secret(source: PulsarInput, ids: Sequence[int]) -> Batch:
    ciphertext = f"{source.name}/{list(ids)}".encode().ljust(17, b".")
    entry = _as_sent(encrypted(ids[0], ids[-1], count=len(ids), producer=source.name, ciphertext=ciphertext))
    return Batch(ids, entry, Ids(ids[0], ids[-1]), True, [entry])


def _as_sent(entry: bytes) -> bytes:
    """With the checksum that clients write."""
    return summed(entry, crc32c)
