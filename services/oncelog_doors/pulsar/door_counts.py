"""What a door counts, for its metrics: plain numbers, because they change with every SEND."""

from collections import Counter

from oncelog_doors.core.pulsar.server_errors import ServerError
from oncelog_doors.pulsar.commands import TYPES
from oncelog_doors.wire.pulsar_commands_pb2 import Command

_RECEIPT = TYPES["send_receipt"]
_CLOSED = TYPES["close_producer"]
#: Commands that may refuse something: their bodies have an error.
_REFUSING = {TYPES[name]: name for name in ("error", "send_error", "partitions")}


class DoorCounts:
    """Since the start of the door."""

    def __init__(self) -> None:
        self.sends = 0
        self.receipts = 0
        #: producers that the door has closed; their clients open them again
        self.producers_closed = 0
        #: connections beyond a limit, or from an address that has failed too often
        self.connections_refused = 0
        #: of readers and consumers, repeated ones too
        self.messages_out = self.bytes_out = 0
        #: ids that were acknowledged, and name nothing that their consumer holds
        self.acks_ignored = 0
        #: entries that a client could not read, or that could not be made for it
        self.undeliverable = 0
        #: {name of an error code: answers with it}
        self.refusals: Counter[str] = Counter()

    def delivered(self, messages: int, size: int) -> None:
        """An entry was sent to a client. size: bytes of the entry."""
        self.messages_out += messages
        self.bytes_out += size

    def written(self, answer: Command) -> None:
        """A client gets this answer."""
        kind = answer.type
        if kind == _RECEIPT:
            self.receipts += 1
        elif kind == _CLOSED:
            self.producers_closed += 1
        elif kind in _REFUSING:
            body = getattr(answer, _REFUSING[kind])
            if body.HasField("error"):
                self.refusals[ServerError(body.error).name.lower()] += 1
