"""JOIN: the records of all topics, from inventories, notes and a copy. One topic at a time.

Rules
- A topic with a tombstone gets no records. Its name goes to whoever has it now.
- A topic that the restore before has left out stays out, if all its ledgers are of before: another topic may have its
  name now (hazard left-out-ledger-returns).
- The new records have no owner, and the era's first epoch: the first owner takes the topic over, and recovers the last
  ledger of each chain.
- What no asked node shows may be in ledgers that only unseen nodes have. Where that is possible, the owner writes
  GivenUp into both chains before anything else, because indexes, numbers and generations may have been told to clients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import Era, era_of
from oncelog.core.formats.ledger_page import ListPage, PagedLedger
from oncelog.core.formats.topic_record import (
    FORMAT_WITH_HEADS,
    CursorLink,
    CursorRecord,
    GivenUpBehind,
    LedgerLink,
    TopicRecord,
)
from oncelog.core.ids import LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.quorum import coverage
from oncelog.core.rebuild.chain_list import ChainList, CopiedList, Finding, list_chain
from oncelog.core.rebuild.evidence import Evidence
from oncelog.core.rebuild.ledger_record import LedgerRecord, record_of
from oncelog.core.rebuild.result import (
    Asked,
    CopiedRecords,
    NotedRecords,
    Rebuilt,
    RebuiltTopic,
    Review,
    ReviewReason,
)
from oncelog.core.rebuild.sources import Chain, Inventory
from oncelog.core.retention.paging import PageSettings


def join(
    inventories: Iterable[Inventory],
    noted: NotedRecords,
    copied: CopiedRecords | None,
    asked: Asked,
    era: Era,
    pages: PageSettings,
    now_ms: int,
) -> Rebuilt:
    """All topics. now_ms: the append time of ledgers in pages whose own one is not known: nothing is deleted early."""
    evidence = Evidence(inventories, noted, copied, asked)
    topics = {
        topic_id: join_topic(evidence, topic_id, era, pages, now_ms)
        for topic_id in evidence.topic_ids
        if topic_id not in noted.tombstones
    }
    reviews = [review for topic in topics.values() for review in topic.reviews]
    topics = {topic_id: topic for topic_id, topic in topics.items() if topic.record.name}
    names, taken = _names(evidence, topics)
    return Rebuilt(
        topics,
        names,
        (*reviews, *taken),
        max([era.first_id, *(each + 1 for each in evidence.ledger_ids)]),
        deleted=sum(1 for topic_id in evidence.topic_ids if topic_id in noted.tombstones),
        beyond_bound=evidence.unseen_below > 0,
    )


def join_topic(evidence: Evidence, topic_id: TopicId, era: Era, pages: PageSettings, now_ms: int) -> RebuiltTopic:
    """One topic without a tombstone. Its name is empty if nothing names it: then it has no ledger with a head."""
    return _TopicJoin(evidence, topic_id, era, pages, now_ms).result()


def _names(evidence: Evidence, topics: Mapping[TopicId, RebuiltTopic]) -> tuple[dict[str, TopicId], list[Review]]:
    """(The topic of each name, a review for each topic whose name another one has.) A note decides, else the topic with
    the newest ledger."""
    claims: dict[str, list[TopicId]] = {}
    for topic_id, topic in topics.items():
        claims.setdefault(topic.record.name, []).append(topic_id)
    names: dict[str, TopicId] = {}
    reviews: list[Review] = []
    for name, claiming in claims.items():
        point = evidence.noted.names.get(name)
        if point is not None and (point.partitioned or point.deleted or point.topic_id in claiming):
            winner = point.topic_id
        else:
            winner = max(claiming, key=lambda each: topics[each].last_ledger)
        if point is None or not (point.partitioned or point.deleted):
            names[name] = winner
        for topic_id in claiming:
            if topic_id != winner:
                message = f"topic {topic_id} has the name of topic {winner}; accepted: no name leads to {topic_id}"
                reviews.append(Review(topic_id, name, ReviewReason.NAME_TAKEN, message))
    return names, reviews


def _complete_below(owner_epoch: OwnerEpoch) -> LedgerId:
    """A record of this epoch names all ledgers below: owners of its era get higher ids for new ones."""
    return LedgerId(Era(era_of(owner_epoch), "").first_id)


class _TopicJoin:
    def __init__(self, evidence: Evidence, topic_id: TopicId, era: Era, pages: PageSettings, now_ms: int) -> None:
        self._evidence = evidence
        self._topic_id = topic_id
        self._era = era
        self._pages = pages
        self._now_ms = now_ms
        self._copied = evidence.copied.topics.get(topic_id, TopicRecord(topic_id, ""))
        cursor = evidence.copied.cursors.get(topic_id)
        self._copied_cursor = CursorRecord(OwnerEpoch(0)) if cursor is None else cursor
        self._reviews: list[Review] = []

    def result(self) -> RebuiltTopic:
        copied, cursor = self._copied, self._copied_cursor
        paged = self._copied_pages()
        listed = {each.ledger_id: each.base_index for each in paged.values()} | dict(copied.ledgers)
        missing = [link for link in copied.pages if link.first not in paged]
        links = {link.ledger_id: link for link in cursor.ledgers}
        left_out = LedgerId(0) if self._is_known else self._evidence.copied.complete_below
        below, cursor_below = (max(left_out, _complete_below(each.owner_epoch)) for each in (copied, cursor))
        acked, kept = dict.fromkeys(copied.acks, 0), dict.fromkeys(links, 0)
        log = self._chain(LedgerPurpose.LOG, CopiedList(listed, copied.deleted_below, below, missing))
        acks = self._chain(LedgerPurpose.ACKS, CopiedList(acked, copied.acks_deleted_below, below))
        snapshots = self._chain(LedgerPurpose.DEDUP, CopiedList(kept, cursor.deleted_below, cursor_below))
        chains = (log, acks, snapshots)
        name = self._name(chains)
        records = [
            self._record(name, chain, ledger_record)
            for chain in chains
            for ledger_record in (record_of(self._evidence, self._topic_id, ledger) for ledger in chain.ledgers)
        ]
        for chain in chains:
            self._reviews += [self._review(name, chain.chain.purpose, finding) for finding in chain.findings]
        if not snapshots.ledgers and (log.trimmed or acks.trimmed):
            message = (
                "the front of its log or ack log was deleted, and no node that was asked has a snapshot; accepted: "
                "marks of producers and acknowledgements from before are lost"
            )
            self._reviews.append(Review(self._topic_id, name, ReviewReason.NO_SNAPSHOT, message))
        pages, ledgers = self._paged(log, {each.metadata.ledger_id: each for each in records}, paged)
        record = replace(
            copied,
            name=name,
            owner=None,
            owner_epoch=OwnerEpoch(self._era.first_epoch),
            ledgers=ledgers,
            deleted_below=log.floor,
            acks=tuple(each.ledger_id for each in acks.ledgers),
            acks_deleted_below=acks.floor,
            format=max(copied.format, FORMAT_WITH_HEADS),
            pages=tuple(page.link for page in pages),
        )
        cursor_links = tuple(links.get(each.ledger_id, CursorLink(each.ledger_id, None)) for each in snapshots.ledgers)
        epoch = OwnerEpoch(self._era.first_epoch)
        return RebuiltTopic(
            record,
            replace(cursor, owner_epoch=epoch, ledgers=cursor_links, deleted_below=snapshots.floor)
            if records
            else None,
            tuple(each.metadata for each in records),
            pages,
            tuple(self._reviews),
            self._given_up(log, acks),
            tuple(each.wanted for each in records if each.wanted is not None),
            sum(each.without_holder for each in records),
            tuple(each for chain in chains for each in chain.passed_over),
        )

    @property
    def _is_known(self) -> bool:
        """Whether a copy or a note names the topic."""
        return self._topic_id in self._evidence.copied.topics or self._topic_id in self._evidence.noted_names

    def _copied_pages(self) -> dict[LedgerId, PagedLedger]:
        """The ledgers of the log that the copy lists in pages."""
        pages = {page.name: page for page in self._evidence.copied.pages.get(self._topic_id, ())}
        linked = [(link, pages[link.name]) for link in self._copied.pages if link.name in pages]
        return {each.ledger_id: each for link, page in linked for each in link.listed(page)}

    def _chain(self, purpose: LedgerPurpose, copied: CopiedList) -> ChainList:
        return list_chain(self._evidence, Chain(self._topic_id, purpose), copied)

    def _name(self, chains: Iterable[ChainList]) -> str:
        noted = self._evidence.noted_names.get(self._topic_id, self._copied.name)
        heads = [ledger.head.name for chain in chains for ledger in chain.ledgers if ledger.head is not None]
        return noted or (heads[-1] if heads else "")

    # --- what is to be decided ----------------------------------------------------------------------------------------

    def _review(self, name: str, purpose: LedgerPurpose, finding: Finding) -> Review:
        return Review(self._topic_id, name, finding.reason, finding.message, purpose, finding.before, finding.behind)

    def _record(self, name: str, chain: ChainList, record: LedgerRecord) -> LedgerRecord:
        if record.too_few is not None and chain.chain.purpose is not LedgerPurpose.DEDUP:
            metadata = record.metadata
            needed = coverage(write_quorum=metadata.write_quorum, ack_quorum=metadata.ack_quorum)
            message = (
                f"{record.too_few} of the {metadata.write_quorum} members of ledger {metadata.ledger_id} can say where "
                f"it ends, and {needed} are needed ({', '.join(metadata.members)}); accepted: its topic waits for them"
            )
            review = Review(self._topic_id, name, ReviewReason.TOO_FEW_MEMBERS, message, chain.chain.purpose)
            self._reviews.append(review)
        return record

    def _given_up(self, log: ChainList, acks: ChainList) -> GivenUpBehind | None:
        """Whether a ledger that no asked node shows may be behind the last one of a chain, or an operator's acceptance
        gives up something: a takeover goes on without it only then."""
        behind = GivenUpBehind(log.last, acks.last, self._evidence.asked.given_up_by)
        accepted = any(review.reason is not ReviewReason.TOO_FEW_MEMBERS for review in self._reviews)
        unseen = self._evidence.unseen_below > min(log.last, acks.last)
        return behind if accepted or unseen or self._owed(log, acks) else None

    def _owed(self, log: ChainList, acks: ChainList) -> bool:
        """Whether a chain does not say yet what an earlier restore gave up. Its first ledger since then says it, right
        behind the head."""
        below = self._evidence.asked.owed_below
        created_since = bool(log.ledgers) and log.ledgers[0].ledger_id >= below and not log.trimmed
        if not below or (created_since and not acks.ledgers):
            return False
        return not (self._has_entries_since(below, log) and self._has_entries_since(below, acks))

    def _has_entries_since(self, ledger_id: LedgerId, chain: ChainList) -> bool:
        since = (each.ledger_id for each in chain.ledgers if each.ledger_id >= ledger_id)
        return any(copy.last > 0 for each in since for copy in self._evidence.copies(each))

    # --- pages --------------------------------------------------------------------------------------------------------

    def _paged(
        self, log: ChainList, records: Mapping[LedgerId, LedgerRecord], known: Mapping[LedgerId, PagedLedger]
    ) -> tuple[tuple[ListPage, ...], tuple[LedgerLink, ...]]:
        """The pages of the log, and the newest ledgers, which the topic record lists itself."""
        links = [LedgerLink(each.ledger_id, each.base_index) for each in log.ledgers]
        indexes = [link.base_index for link in links[1:]]
        size, pages, begin = self._pages.ledgers, list[ListPage](), 0
        while len(links) - begin > max(size, self._pages.inline_max):
            page = zip(links[begin : begin + size], indexes[begin : begin + size], strict=True)
            ledgers = [
                known.get(link.ledger_id, self._page_entry(link, following, records[link.ledger_id]))
                for link, following in page
            ]
            pages.append(ListPage(tuple(ledgers)))
            begin += size
        return tuple(pages), tuple(links[begin:])

    def _page_entry(self, link: LedgerLink, following: int, record: LedgerRecord) -> PagedLedger:
        """following: the index of the first message of the next ledger."""
        size_bytes = record.metadata.length if following > link.base_index else 0
        return PagedLedger(link.ledger_id, link.base_index, size_bytes, self._now_ms)
