"""Reading records, each content once: faults and oracles look at the same records in every step.

A process with SIMULATION_WAY=slow reads each content anew, and looks at all ledgers before it says whether one is not
whole. `python -m tests.simulation --compare-slow N` compares both ways.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from oncelog.core.formats import ledger_page, topic_record
from oncelog.core.ledger import metadata

#: More than a run has at a time.
_KEPT = 2000
WAY = "SIMULATION_WAY"
SLOW = os.environ.get(WAY) == "slow"

RecordT = TypeVar("RecordT")


def _read_once(decode: Callable[[bytes], RecordT]) -> Callable[[bytes], RecordT]:
    return decode if SLOW else lru_cache(_KEPT)(decode)


decode_ledger = _read_once(metadata.decode_ledger)
decode_topic = _read_once(topic_record.decode_topic)
decode_cursor = _read_once(topic_record.decode_cursor)
decode_page = _read_once(ledger_page.decode_page)
