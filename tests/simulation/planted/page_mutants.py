"""Planted bugs of pages of ledgers: each takes one rule from the topic record, its owner or its takeover."""

from dataclasses import replace
from typing import Any

from oncelog.core.chain.replay_list import ReplayList
from oncelog.core.formats import topic_record
from oncelog.core.formats.ledger_page import ListPage, encode_page
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.retention.ledger_sizes import LedgerSizes
from oncelog.core.retention.topic_retention import TopicRetention
from oncelog.core.topic.serving import Serving
from tests.simulation.servers.owners.topic_shell import TopicShell
from tests.simulation.servers.store import records
from tests.simulation.servers.store.ledger_lists import page_path

_without, _write, _start, _cut = TopicRecord.without, TopicShell._write, ReplayList.start, LedgerSizes.cut


def _page_after_its_link(shell: TopicShell, effect: Any) -> None:
    """The topic record is written first, and the page when the answer is here."""
    page = getattr(effect, "page", None)
    if page is None:
        _write(shell, effect)
        return
    _write(shell, replace(effect, page=None))
    path, data, store = page_path(shell.topic_id, page.name), encode_page(page), shell.owner.store

    def write() -> None:
        store.put(path, data, -1)

    shell.owner.post(5, "writes a page", write)


def _without_the_first(page: ListPage) -> bytes:
    """A link is lost between the record and the page."""
    return encode_page(ListPage(page.ledgers[1:]))


def _without_a_floor(record: TopicRecord, *arguments: Any) -> TopicRecord:
    """The trim of a page does not raise the floor, which proves to storage nodes that its ledgers were deleted."""
    trimmed = _without(record, *arguments)
    return replace(trimmed, deleted_below=record.deleted_below) if record.pages else trimmed


def _cut_as_a_whole(space: LedgerSizes, last_gone: Any) -> Any:
    """A trim that ends within a page takes all of the page."""
    left, gone = _cut(space, last_gone)
    return (None, gone) if left is None else (left._replace(first=left.last, ledgers=1), gone)


def _from_the_tail(ledgers: ReplayList, begin: Any) -> None:
    """The takeover replays what the topic record lists itself."""
    ledgers._pages.clear()
    _start(ledgers, begin)


def at_any_trim(space: TopicRetention) -> None:
    """A trim of the ack log ends that of the log, if the index at which the log begins stays as it is."""
    first, trim = space._ownership.record.first, space._trimming
    if first is not None and trim is not None and first.base_index >= trim.first_index:
        space._trimming = None
        space.ledgers.trimmed(space._ownership.record)
        space._subscriptions.trim_ended(first.base_index)


def _last_of(_serving: Serving, last: Any, _ledgers: Any) -> Any:
    """Every ledger leaves the list when the next one is linked."""
    return last[0] if last else None


#: (name, hazard, first seed, swaps)
PAGE_MUTANTS: tuple[tuple[str, str, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    ("page linked before it is written", "oversized-ledger-list", 8, ((TopicShell, "_write", _page_after_its_link),)),
    ("page without its first ledger", "oversized-ledger-list", 8, ((records, "encode_page", _without_the_first),)),
    (
        "trim of a page without a floor", "oversized-ledger-list", 31,
        ((topic_record.TopicRecord, "without", _without_a_floor),),
    ),
    ("trim within a page takes all of it", "oversized-ledger-list", 32, ((LedgerSizes, "cut", _cut_as_a_whole),)),
    ("ledger with entries leaves its list", "oversized-ledger-list", 0, ((Serving, "_empty_one", _last_of),)),
    ("takeover replays no pages", "oversized-ledger-list", 24, ((ReplayList, "start", _from_the_tail),)),
)  # fmt: skip
