"""How many bytes the requests of clients take while they are not decided, and which connections are read meanwhile.

A connection is not read from the request on that reaches its own limit or that of the process, and read again when both
are kept. Nothing is refused: a client that gets a refusal sends the same bytes again.
"""

from collections import Counter


class ByteBudget:
    """Of one process. A connection has a number."""

    def __init__(self, *, connection_bytes: int, process_bytes: int) -> None:
        self._connection_bytes, self._process_bytes = connection_bytes, process_bytes
        self._of_connection: Counter[int] = Counter()
        self.total = 0
        #: connections that are not read, in the order in which they were stopped
        self._stopped: dict[int, None] = {}

    def taken(self, connection: int, size: int) -> bool:
        """A request came. Returns whether its connection is not read any more."""
        self._of_connection[connection] += size
        self.total += size
        if not self._is_over(connection):
            return False
        self._stopped[connection] = None
        return True

    def decided(self, connection: int, size: int) -> list[int]:
        """A request is decided. Returns the connections that are read again."""
        self._of_connection[connection] -= size
        self.total -= size
        if not self._of_connection[connection]:
            del self._of_connection[connection]
        again = [each for each in self._stopped if not self._is_over(each)]
        for each in again:
            del self._stopped[each]
        return again

    def gone(self, connection: int) -> None:
        """It is over. What it has sent counts until it is decided."""
        self._stopped.pop(connection, None)

    def _is_over(self, connection: int) -> bool:
        return self._of_connection[connection] >= self._connection_bytes or self.total >= self._process_bytes
