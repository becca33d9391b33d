"""Reading records, each content once: faults and oracles look at the same records in every step."""

from functools import lru_cache

from oncelog.core.formats import ledger_page, topic_record
from oncelog.core.ledger import metadata

#: More than a run has at a time.
_KEPT = 2000

decode_ledger = lru_cache(_KEPT)(metadata.decode_ledger)
decode_topic = lru_cache(_KEPT)(topic_record.decode_topic)
decode_cursor = lru_cache(_KEPT)(topic_record.decode_cursor)
decode_page = lru_cache(_KEPT)(ledger_page.decode_page)
