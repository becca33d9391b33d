"""One page of a look at what is stored: forwards or backwards, all messages or those that a filter wants.

A page ends when it is full, when it has read enough, or before messages that cannot be read: so whoever asks is
answered soon, goes on with the next page, or stops. `begin_index` to before `next_index` is what it has looked at.
"""

import asyncio
from dataclasses import dataclass, field

from oncelog.core.delivery.events import ReadMessages, StoredEntry
from oncelog.core.errors import CompressionUnavailable, CorruptEntry, EntriesLost, UnreadableEntry
from oncelog.core.ids import SubscriptionNumber
from oncelog.core.search.message_filter import MessageFilter
from oncelog.topic_owner.observe.stored_messages import shown_messages
from oncelog.topic_owner.shell.message_reads import MessageReads
from oncelog.wire import finding_pb2 as pb

#: A page ends before its limit when its messages have so many bytes together, or when so many were read.
PAGE_BYTES = 1 << 20
READ_BYTES = 8 << 20
#: Read at once: small messages need no more, and of large ones one entry is read in any case.
_STEP_BYTES = 64 * 1024
#: A step backwards reads all of its messages: few at first, more while they are small.
_BACK_MAX = 4096
_BACK_BYTES = 256 * 1024


@dataclass(slots=True)
class _Look:
    """Messages from `begin_index` to before `next_index`. unreadable: what is at next_index."""

    begin_index: int
    next_index: int
    messages: list[pb.StoredMessage] = field(default_factory=list)
    unreadable: pb.UnreadableMessages | None = None


class StoredPage:
    """Fills one answer. Its `begin_index` and `next_index` are where it begins; `first_index`, `end_index`: the log."""

    def __init__(
        self,
        answer: pb.StoredMessagesAnswer,
        reads: MessageReads,
        request: pb.StoredMessagesRequest,
        wanted: MessageFilter,
    ) -> None:
        self._answer = answer
        self._reads = reads
        self._request = request
        self._wanted = wanted
        self._page_bytes = 0
        self._read_bytes = 0

    async def fill(self) -> None:
        """Raises the errors of `MessageReads.read`, but those of messages that cannot be read."""
        answer = self._answer
        while self._has_room and answer.next_index < answer.end_index:
            look = await self._look(answer.next_index, answer.end_index, self._room)
            answer.messages.extend(look.messages)
            answer.next_index = look.next_index
            if look.unreadable is not None:
                if not answer.messages:
                    answer.unreadable.CopyFrom(look.unreadable)
                    answer.next_index = look.unreadable.first_index + look.unreadable.count
                return

    async def fill_backwards(self) -> None:
        """The newest first, of those before `next_index`. Raises as `fill`."""
        answer, step = self._answer, 1
        answer.begin_index = answer.next_index
        while self._has_room and answer.begin_index > answer.first_index:
            high, before = answer.begin_index, self._read_bytes
            low, above, bad = await self._look_through(max(answer.first_index, high - step), high)
            kept = above[-self._room :]
            answer.messages.extend(reversed(kept))
            answer.begin_index = low if bad is None else bad.first_index + bad.count
            if len(kept) < len(above):
                answer.begin_index = kept[0].index
            elif bad is not None:
                if not answer.messages and answer.begin_index == high:
                    answer.unreadable.CopyFrom(bad)
                    answer.begin_index = max(answer.first_index, bad.first_index)
                return
            step = min(2 * step, _BACK_MAX) if self._read_bytes - before < _BACK_BYTES else max(1, step // 2)

    async def _look_through(
        self, low: int, high: int
    ) -> tuple[int, list[pb.StoredMessage], pb.UnreadableMessages | None]:
        """(The first index of the entry of `low`, the messages that are wanted between the last that cannot be read and
        `high`, the messages that cannot)."""
        begin = at = low
        found: list[pb.StoredMessage] = []
        bad: pb.UnreadableMessages | None = None
        while at < high:
            look = await self._look(at, high, high, whole=at == low)
            begin = min(begin, look.begin_index)
            found += look.messages
            at = look.next_index
            if look.unreadable is not None:
                found, bad = [], look.unreadable
                at = min(high, max(at, bad.first_index + bad.count - 1) + 1)
                bad.count = at - bad.first_index
        return begin, found, bad

    @property
    def _room(self) -> int:
        return self._request.limit - len(self._answer.messages)

    @property
    def _has_room(self) -> bool:
        return self._room > 0 and self._page_bytes < PAGE_BYTES and self._read_bytes < READ_BYTES

    async def _look(self, begin: int, end: int, room: int, *, whole: bool = False) -> _Look:
        """One read. room: messages that may be found. whole: from the first message of the entry of `begin` on."""
        look = _Look(begin, begin)
        try:
            effect = ReadMessages(SubscriptionNumber(0), begin, bytes_max=_STEP_BYTES)
            entries = (await self._reads.read(effect)).entries
        except (UnreadableEntry, EntriesLost) as error:
            first, count = int(error.details["first_index"] or 0), int(error.details["count"] or 0)
            look.unreadable = pb.UnreadableMessages(first_index=first, count=count, reason=error.message)
            return look
        if not entries:
            look.next_index = end  # messages that were given up with a lost ledger
        elif whole:
            look.begin_index = look.next_index = max(self._answer.first_index, min(begin, entries[0].base_index))
        for entry in entries:
            begun = look.next_index > begin
            if look.next_index >= end or len(look.messages) >= room or (begun and not self._has_room):
                break
            try:
                # A batch may decompress to megabytes: the owner goes on meanwhile.
                messages = await asyncio.to_thread(self._of_entry, entry, look.next_index, room - len(look.messages))
            except (CorruptEntry, CompressionUnavailable) as error:
                look.unreadable = pb.UnreadableMessages(
                    first_index=entry.base_index, count=entry.count, reason=error.message
                )
                return look
            messages = [one for one in messages if one.index < end]
            look.messages += messages
            full = len(look.messages) >= room
            look.next_index = messages[-1].index + 1 if full else min(end, entry.base_index + entry.count)
            self._page_bytes += sum(one.ByteSize() for one in messages)
            self._read_bytes += len(entry.data)
        return look

    def _of_entry(self, entry: StoredEntry, first_index: int, count_max: int) -> list[pb.StoredMessage]:
        request = self._request
        return shown_messages(
            entry, first_index, count_max, self._wanted,
            with_content=request.with_content, value_bytes_max=request.value_bytes_max,
        )  # fmt: skip
