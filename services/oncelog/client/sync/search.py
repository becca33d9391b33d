"""The synchronous search."""

from collections import deque
from collections.abc import Iterator

from oncelog.client.portal import Portal
from oncelog.client.reading.search import AsyncSearch, SearchProgress
from oncelog.client.sync.wrapper import Wrapper, documented_by
from oncelog.client.values.messages import Message


class Search(Wrapper[AsyncSearch]):
    """The messages that were asked for. Made by `Client.search`; for one thread at a time.

        with client.search("orders", key="table-4") as search:
            for message in search:
                ...
        print(search.progress)

    The iteration waits for nothing new. Raises the errors of a reader.
    """

    def __init__(self, inner: AsyncSearch, portal: Portal) -> None:
        super().__init__(inner, portal)
        self._waiting: deque[Message] = deque()

    @property
    @documented_by(AsyncSearch.progress)
    def progress(self) -> SearchProgress:
        return self._inner.progress

    @documented_by(AsyncSearch.next_messages)
    def next_messages(self) -> list[Message]:
        messages = list(self._waiting)
        self._waiting.clear()
        return messages or self._portal.run(self._inner.next_messages())

    @documented_by(AsyncSearch.close)
    def close(self) -> None:
        self._waiting.clear()
        self._portal.end(self._inner.close())

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if not self._waiting:
            self._waiting.extend(self._portal.run(self._inner.next_messages()))
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()
