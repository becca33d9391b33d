"""Messages that only a program with their producer's key can read: clients of Pulsar can encrypt what they send."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from oncelog.client.values.arguments import choice
from oncelog.client.values.corruption import OnCorrupt
from oncelog.core.formats.encryption import Encryption


class OnEncrypted(Enum):
    """RAISE: each read raises MessageEncrypted. PASS: the value of such a message is an EncryptedMessage."""

    RAISE = "raise"
    PASS = "pass"  # noqa: S105  # no password


_ON_CORRUPT: dict[str, OnCorrupt] = {"raise": OnCorrupt.RAISE, "skip": OnCorrupt.SKIP}
_ON_ENCRYPTED: dict[str, OnEncrypted] = {"raise": OnEncrypted.RAISE, "pass": OnEncrypted.PASS}


def choices_of(on_corrupt: str, on_encrypted: str) -> tuple[OnCorrupt, OnEncrypted]:
    """What a reader or a consumer does with what it cannot read. Raises InvalidArgument."""
    return choice("on_corrupt", _ON_CORRUPT, on_corrupt), choice("on_encrypted", _ON_ENCRYPTED, on_encrypted)


@dataclass(frozen=True, slots=True)
class EncryptedMessage:
    """The value of an encrypted message: never its bytes as if they were one.

    Attributes:
        entry: what the client of Pulsar has sent, from its mark 0x0e01 on: metadata, then the encrypted payload. All
            messages of a batch are in it together.
        batch_index: which message of the entry it is.
        batch_count: how many messages the entry holds.
        keys: {name of a key: the key of the data, encrypted with it}.
        algorithm, parameters: of the encryption, as the metadata states them.
    """

    entry: bytes
    batch_index: int
    batch_count: int
    keys: Mapping[str, bytes]
    algorithm: str
    parameters: bytes

    @classmethod
    def of(cls, entry: bytes, batch_index: int, batch_count: int, encryption: Encryption) -> "EncryptedMessage":
        keys, algorithm, parameters = encryption
        return cls(entry, batch_index, batch_count, keys, algorithm, parameters)

    def __repr__(self) -> str:
        place = f"{self.batch_index} of {self.batch_count}"
        return f"EncryptedMessage(message {place}, {len(self.entry)} bytes, keys {sorted(self.keys)})"
