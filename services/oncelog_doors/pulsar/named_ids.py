"""Message ids as clients of Pulsar name them in ACK and REDELIVER."""

from collections.abc import Iterable

from oncelog_doors.core.pulsar.consuming.acknowledgements import NamedId
from oncelog_doors.core.pulsar.message_ids import names_chunk
from oncelog_doors.wire.pulsar_values_pb2 import MessageId


def named_ids(ids: Iterable[MessageId]) -> list[NamedId]:
    """Without the ids of chunks that are not the last one of their message: they mean nothing (`message_ids`)."""
    return [
        NamedId(each.ledger_id, each.entry_id, each.batch_index, tuple(each.ack_set), each.batch_size)
        for each in ids
        if not names_chunk(each.entry_id)
    ]
