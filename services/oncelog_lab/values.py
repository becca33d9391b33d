"""The messages of a load. Loads no client: programs that measure other clients use it, too."""

import os

#: Number of different values of a load. Half of each is random, so that it does not compress well.
DISTINCT_VALUES = 1000


def make_values(message_bytes: int, count: int) -> list[bytes]:
    """`count` messages of one size."""
    noise = message_bytes // 2
    distinct = [os.urandom(noise) + bytes(message_bytes - noise) for _ in range(min(count, DISTINCT_VALUES))]
    return [distinct[index % len(distinct)] for index in range(count)]
