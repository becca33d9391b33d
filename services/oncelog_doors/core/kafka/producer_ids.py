"""Producer ids, as InitProducerId gives them to clients.

    producer id = id of the log << 8 | check

The id of the log is one that it gives only once, to nothing else and in no era again. The check is computed from it and
from the cluster: a client whose address was that of another cluster before goes on under an id of that cluster, which
may be in use here and far ahead, so its batches would count as sent before (hazard producer-id-of-another-cluster).
Such ids are recognised, except one in 256.

An epoch has 15 bits. A client raises its own by asking with the id that it has; nothing is stored for that.
"""

from collections.abc import Callable
from typing import NamedTuple

from oncelog.core.formats.epoched_ids import EPOCH_MAX

_CHECK_BITS = 8
_CHECKS = 1 << _CHECK_BITS

#: `checksum(data) -> int`, CRC32C in production.
Checksum = Callable[[bytes], int]


class RaisedEpoch(NamedTuple):
    producer_id: int
    epoch: int


def producer_id_of(log_id: int, cluster_id: str, checksum: Checksum) -> int:
    """log_id: 1 to 2**55 - 1."""
    return log_id << _CHECK_BITS | _check(log_id, cluster_id, checksum)


def is_ours(producer_id: int, cluster_id: str, checksum: Checksum) -> bool:
    """Whether this cluster may have given it."""
    log_id = producer_id >> _CHECK_BITS
    return log_id > 0 and producer_id % _CHECKS == _check(log_id, cluster_id, checksum)


def raised(producer_id: int, epoch: int) -> RaisedEpoch | None:
    """What a client gets that asks with the id and the epoch that it has; None: a new id, because it has none or its
    epochs are used up."""
    return RaisedEpoch(producer_id, epoch + 1) if producer_id >= 0 and 0 <= epoch < EPOCH_MAX else None


def _check(log_id: int, cluster_id: str, checksum: Checksum) -> int:
    return checksum(f"{cluster_id}/{log_id}".encode()) % _CHECKS
