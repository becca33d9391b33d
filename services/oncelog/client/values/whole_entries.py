"""Entries as they are stored, whole: what gateways read and consume."""

from typing import NamedTuple

from oncelog.client.values.messages import StoredBatch
from oncelog.core.ids import Position
from oncelog.rpc.codecs.reader_codec import StartEdge, StartIndex, StartTime

#: Position: with this entry. StartIndex: with the entry that holds this message.
EntryStart = StartEdge | StartTime | StartIndex | Position


class WholeEntry(NamedTuple):
    """producer_name: None: the entry has none, or the topic does not know it any more."""

    stored: StoredBatch
    producer_name: str | None
