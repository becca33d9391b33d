"""What an encrypted entry of a client of Pulsar says of its encryption. We never decrypt: only programs have keys."""

from collections.abc import Mapping
from typing import NamedTuple


class Encryption(NamedTuple):
    """keys: {name of a key: the key of the data, encrypted with it}. parameters: of the algorithm."""

    keys: Mapping[str, bytes]
    algorithm: str
    parameters: bytes
