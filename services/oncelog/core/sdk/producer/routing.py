"""Where a message goes, by the same rules wherever messages are routed, so that a replay goes there again (hazard
resent-to-another-partition). Pure.

    key given                   the partition of the key's hash
    no key, own sequence ids    sequence_id modulo the number of partitions
    neither                     the partitions in turn, one for each call; a list stays together

The hash is the CRC-32 (as of zlib, IEEE 802.3) of the key's bytes modulo the number of partitions. It depends on
nothing else, so every retry, process and language finds the same partition. When a topic gets more partitions, keys
move.

When the topic gets more partitions, messages without a sequence id use them within a minute. Messages with a sequence
id of the application's own use the partitions that the topic had when the producer name was first opened: a message
that is sent again must reach the partition that has it, or it would be stored there and in a new one. The grant of the
first partition records that number (`growths` of ProducerOpened).
"""

import zlib
from collections.abc import Sequence
from itertools import count as count_up

from oncelog.core.sdk.producer.sequence_ids import check_sequence_id


def partition_of(key: bytes | bytearray | memoryview, partitions: int) -> int:
    """The partition, 0 to partitions - 1. partitions: at least 1."""
    return zlib.crc32(key) % partitions


class Routing:
    """The partitions that one producer uses.

    partitions: their number. numbered: the first so many take messages with sequence ids of the application's own.
    """

    def __init__(self, partitions: int, numbered: int) -> None:
        self.partitions = partitions
        self.numbered = numbered
        self._turns = count_up()

    def turn(self) -> int:
        """The next partition in turn."""
        return next(self._turns) % self.partitions

    def fixed(self, sequence_id: int | None, key: bytes | None) -> int | None:
        """The partition of a message; None: any. Raises InvalidSequenceId."""
        partitions = self.partitions if sequence_id is None else self.numbered
        if key is not None:
            return partition_of(key, partitions)
        return None if sequence_id is None else check_sequence_id(sequence_id) % partitions

    def split(
        self, count: int, sequence_ids: Sequence[int] | None, keys: Sequence[bytes | None] | None
    ) -> tuple[list[tuple[int, int]], dict[int, list[int]]]:
        """Where the messages of a list go; all without key and sequence id go together.

        Returns for each message (its partition, its index in the list that goes there), and {partition: the indexes of
        its messages in the whole list}. Raises InvalidSequenceId.
        """
        turn = self.turn()
        places: list[tuple[int, int]] = []
        lists: dict[int, list[int]] = {}
        for index in range(count):
            fixed = self.fixed(
                None if sequence_ids is None else sequence_ids[index], None if keys is None else keys[index]
            )
            number = turn if fixed is None else fixed
            indexes = lists.setdefault(number, [])
            places.append((number, len(indexes)))
            indexes.append(index)
        return places, lists
