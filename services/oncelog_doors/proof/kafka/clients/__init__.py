"""The same small program with each client library of Kafka: it does what it reads, and prints what it is answered.

SERVERS TOPIC as arguments, then lines on standard input; values and tags have no spaces:

open COUNT AGE_S LIMIT    an idempotent producer; COUNT 1: each message is a batch
                          of its own, else what one line sends; librdkafka makes
                          batches of COUNT; timestamps are so old; LIMIT of batches
                          in flight, 0: the library's own                            opened
send PARTITION TAG ...    without waiting; the value is the tag without apostrophes  sent TAG OFFSET
                                                                                     failed TAG WHAT
renumber NUMBER           of the next record of partition 0, as if so many were sent renumbered
read                      all partitions to their ends             read PARTITION OFFSET VALUE ...
"""

import sys
import time
from collections.abc import Iterator
from typing import Any


def lines() -> Iterator[list[str]]:
    """What the program is asked, in words."""
    for line in sys.stdin:
        yield line.split()


def say(*words: Any) -> None:
    """At once, from any thread."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def value_of(tag: str) -> bytes:
    return tag.rstrip("'").encode()


def time_ms(age_s: str) -> int:
    return int(time.time() * 1000) - int(age_s) * 1000
