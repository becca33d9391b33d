"""How many messages a consumer may still be sent.

The permits of FLOW are summed. An entry is sent whole while any permit is left, so the sum may get below 0: else an
entry with more messages than the client's queue has places would never be sent (hazard entry-above-the-permits). The
client counts each message of the entry as consumed, also those that it drops. Messages that a mask hides cost nothing:
clients do not count them.
"""


class Permits:
    """Of one consumer, from SUBSCRIBE on. `left` is what the client has room for."""

    def __init__(self) -> None:
        #: below 0: the last entry was larger than the sum
        self.left = 0
        #: of all FLOWs; never falls. The owner of the topic is given this sum, and `Outstanding.unsent`: it counts each
        #: message that it delivers, also those that the client never got.
        self.total = 0

    def flow(self, permits: int) -> None:
        """The client has room for so many messages more."""
        self.left += permits
        self.total += permits

    @property
    def any(self) -> bool:
        """Whether an entry may be sent."""
        return self.left > 0

    def sent(self, messages: int) -> None:
        """An entry with so many messages was sent."""
        self.left -= messages
