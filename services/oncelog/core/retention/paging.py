"""When ledgers of the log move from the topic record to a page.

    tick --the record lists more than inline_max ledgers, of which--
         --the ends of the oldest ones are not known--> ReadLedgerEnds; twice as many: not waited for
         --otherwise--> one page with page_ledgers of them, and its link, in one write

Rules
- A page holds what retention needs to know of its ledgers, because reading a million of their records would take long.
- While a trim is in flight no page is written, and the other way round: each changes what the other one names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oncelog.core.chain.ownership import Ownership
from oncelog.core.formats.ledger_page import ListPage, PageLink
from oncelog.core.ids import LedgerId
from oncelog.core.retention.ledger_sizes import LedgerSizes
from oncelog.core.topic_events.effects import Step


@dataclass(frozen=True, slots=True)
class PageSettings:
    """ledgers: in one page. inline_max: ledgers that the topic record lists before some move to a page."""

    ledgers: int = 4_000
    inline_max: int = 5_000


class Paging:
    """Of one owner's topic."""

    def __init__(
        self,
        step: Step,
        ownership: Ownership,
        space: LedgerSizes,
        settings: PageSettings,
        *,
        read_ends: Callable[[Sequence[LedgerId]], None],
    ) -> None:
        """read_ends: reads the ends of these ledgers, unless they are being read."""
        self._step = step
        self._ownership = ownership
        self._space = space
        self._settings = settings
        self._read_ends = read_ends
        #: the page that is being written
        self.moving: ListPage | None = None

    def tick(self) -> None:
        """Time has passed, and no trim is in flight."""
        links, settings = self._ownership.record.ledgers, self._settings
        if len(links) <= settings.inline_max or self.moving is not None:
            return
        links = links[: settings.ledgers]
        unknown = self._space.unknown_of(links)
        if unknown and len(self._ownership.record.ledgers) <= 2 * settings.inline_max:
            self._read_ends(unknown)
            return
        self.moving = self._space.page_of(links, self._step.now_ms)
        self._ownership.move_to_page(self.moving)

    def paged(self, link: PageLink) -> None:
        """The topic record links the page."""
        page, self.moving = self.moving, None
        if page is not None and page.name == link.name:
            self._space.moved(page, self._ownership.record.ledgers[0].base_index)
