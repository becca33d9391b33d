"""Pages of a topic's list of ledgers: /oncelog/pages/<topic_id>/<name>.

The topic record lists the newest ledgers of the log one by one. Older ones, all CLOSED, are in pages: records of their
own, of some thousand ledgers each, which the topic record links in the order of the log.

    the oldest ledgers of the topic record --one transaction--> a page, linked by the topic record
    a linked page --the compare-and-set that trims--> linked without its first ledgers, or not linked any more
    a page below the topic's floor --its ledgers' records are deleted--> deleted

Rules
- The transaction writes the topic record by compare-and-set and creates the page. So a page exists only if the current
  owner has linked it, and a deposed owner writes none. Nothing is left behind by a crash.
- A page is never changed. A trim that ends within a page changes the link: `first` says where the page begins now.
- A page is named by its first ledger. Ledger ids are not used twice, so no two pages have the same name.
- A page whose ledgers are all below the topic's floor (`deleted_below`) is not linked any more, now or later. It is
  deleted after the records of its ledgers, by the next trim if a crash came between.

Format 1: JSON of four lists with one number for each ledger. The first number of `ledgers`, `indexes` and `ended` is a
value, each later one is the difference to the one before; `bytes` has values.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.record_fields import numbers, parse_json
from oncelog.core.ids import LedgerId

PAGE_FORMAT = 1


class PagedLedger(NamedTuple):
    """One ledger of a page. base_index: of its first message. message_bytes: its length if it has messages, else 0.

    ended_ms: append time of the last entry; 0: it has none. Where the end could not be read it is the time at which the
    page was written, so that nothing is deleted too early.
    """

    ledger_id: LedgerId
    base_index: int
    message_bytes: int
    ended_ms: int


class PageLink(NamedTuple):
    """A page in the topic record: the ledgers of the page from `first` on, up to `last`.

    base_index: of the first message of `first`. ledgers: how many these are. message_bytes: of all of them. ended_ms:
    the highest.
    """

    name: LedgerId
    first: LedgerId
    base_index: int
    last: LedgerId
    ledgers: int
    message_bytes: int
    ended_ms: int

    def listed(self, page: "ListPage") -> tuple[PagedLedger, ...]:
        """The ledgers of the page that are in the log still."""
        return page.ledgers[len(page.ledgers) - self.ledgers :]


@dataclass(frozen=True, slots=True)
class ListPage:
    """ledgers: ascending ids, at least one."""

    ledgers: tuple[PagedLedger, ...]

    @property
    def name(self) -> LedgerId:
        return self.ledgers[0].ledger_id

    @property
    def link(self) -> PageLink:
        """The link of the whole page."""
        return self._link(self.ledgers)

    def link_behind(self, last_gone: LedgerId) -> PageLink | None:
        """The link of what is left when the ledgers up to `last_gone` are deleted; None: nothing."""
        left = [ledger for ledger in self.ledgers if ledger.ledger_id > last_gone]
        return self._link(left) if left else None

    def _link(self, ledgers: Sequence[PagedLedger]) -> PageLink:
        return PageLink(
            self.name, ledgers[0].ledger_id, ledgers[0].base_index, ledgers[-1].ledger_id, len(ledgers),
            sum(ledger.message_bytes for ledger in ledgers), max(ledger.ended_ms for ledger in ledgers),
        )  # fmt: skip


def encode_page(page: ListPage) -> bytes:
    ledgers, indexes, sizes, ended = zip(*page.ledgers, strict=True)
    fields = {
        "format": PAGE_FORMAT,
        "ledgers": _differences(ledgers),
        "indexes": _differences(indexes),
        "bytes": sizes,
        "ended": _differences(ended),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_page(data: bytes) -> ListPage:
    """Raises CorruptEntry when the bytes are not such a record."""
    try:
        fields = parse_json(data)
        if fields["format"] != PAGE_FORMAT:
            raise CorruptEntry(f"page of ledgers of format {fields['format']}: this version reads format {PAGE_FORMAT}")
        ids, indexes = (list(accumulate(numbers(fields, name))) for name in ("ledgers", "indexes"))
        columns = zip(ids, indexes, numbers(fields, "bytes"), accumulate(numbers(fields, "ended")), strict=True)
        ledgers = tuple(PagedLedger(LedgerId(ledger), *rest) for ledger, *rest in columns)
        if not ledgers or any(after.ledger_id <= before.ledger_id for before, after in pairwise(ledgers)):
            raise ValueError("the ledgers of a page must ascend, and there must be one")
        return ListPage(ledgers)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(f"a page of ledgers cannot be read: {error!r}") from error


def _differences(values: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise((0, *values))]
