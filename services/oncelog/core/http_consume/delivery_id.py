"""The names of deliveries and of sessions in HTTP consume.

A delivery is `index.seek_epoch.generation`, and for a topic with partitions `index.seek_epoch.generation.partition`.
The same message has another id after a seek and after a change of the active consumer, so a late acknowledgement
cannot mean another delivery.

A session is `home-secret`. The home stands for the metadata service that keeps the session, so that every other one
finds it: it is a digest of that service's address, which does not tell the address.
"""

import hashlib
import re
from dataclasses import dataclass

from oncelog.core.formats.message_id import NO_PARTITION

_DELIVERY = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})(?:\.([0-9]{1,9}))?", re.ASCII)
_SESSION = re.compile(r"([0-9a-f]{12})-[0-9a-f]{32}", re.ASCII)
#: Hexadecimal digits of the part of a session's id that nobody can guess.
SECRET_BYTES = 16


@dataclass(frozen=True, slots=True)
class DeliveryId:
    """partition: NO_PARTITION for a topic without partitions."""

    index: int
    seek_epoch: int
    generation: int
    partition: int = NO_PARTITION

    def __str__(self) -> str:
        numbers = [self.index, self.seek_epoch, self.generation]
        if self.partition != NO_PARTITION:
            numbers.append(self.partition)
        return ".".join(map(str, numbers))

    @classmethod
    def parse(cls, text: str) -> "DeliveryId | None":
        """None: no session has given out such an id."""
        match = _DELIVERY.fullmatch(text)
        if match is None:
            return None
        index, seek_epoch, generation, partition = match.groups()
        found = cls(int(index), int(seek_epoch), int(generation), int(partition) if partition else NO_PARTITION)
        # With zeros in front it would be a second text for the same delivery.
        return found if str(found) == text else None


def home_of(host: str, port: int) -> str:
    """The home of the sessions that the metadata service at this gRPC address keeps."""
    return hashlib.sha256(f"{host}:{port}".encode()).hexdigest()[:12]


def session_id(home: str, secret: bytes) -> str:
    return f"{home}-{secret.hex()}"


def home_in(session: str) -> str | None:
    """The home that the id names; None: this is no id of a session."""
    match = _SESSION.fullmatch(session)
    return None if match is None else match[1]
