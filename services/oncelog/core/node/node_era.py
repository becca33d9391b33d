"""The era of one node while it runs: what is stored, what of it is durable, and which records its checks read (`era`).

EraReceived --ERA record--> in force at once: nothing of a former era is added behind the record
            --synced--> durable: the request is answered, and an inventory states it
RecordsOpened (the era of the records in ZooKeeper that checks read) --the same era--> checks count
"""

from dataclasses import replace

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.node.answers import Answer, PendingAnswer, StorageAnswers
from oncelog.core.node.era import AnswerEra, EraReceived, EraState
from oncelog.core.node.node_ledger import JournalRecord, RecordKind, StorageLedger
from oncelog.core.node.review import StoredLedgers


class NodeEra:
    def __init__(self, ledgers: StoredLedgers, answers: StorageAnswers) -> None:
        self._ledgers = ledgers
        self._answers = answers
        #: of the records in ZooKeeper that checks read
        self.records = FIRST_ERA
        #: number of the record of the era, and what was durable before it
        self._lsn, self._former = 0, FIRST_ERA

    @property
    def now(self) -> Era:
        """Which this node has stored, perhaps not yet durably."""
        return self._ledgers.era.era

    @property
    def durable(self) -> Era:
        return self.now if self._answers.may_answer(self._lsn) else self._former

    @property
    def records_count(self) -> bool:
        """Whether the records that checks read are those of the node's era."""
        return self.records == self.now

    def received(self, event: EraReceived, records: list[JournalRecord]) -> list[Answer]:
        """Take the era, or not. The answer, if all that it depends on is durable."""
        former, stored = self._ledgers.era, self._ledgers.era.raised(event.era, committed=event.committed)
        if stored.state is EraState.JOINED_LATE and not (self._ledgers or self._ledgers.tombstones):
            stored = replace(stored, state=EraState.COMMITTED)  # a new node: nothing was ever here
        if stored != former:
            self._former, self._ledgers.era = self.durable, stored
            number, restore_id = stored.era
            self._lsn = self._answers.write(
                records, RecordKind.ERA, LedgerId(number), EntryId(stored.state), restore_id.encode()
            )
        if stored.era != former.era and stored.limbo_below:
            self._ledgers.limbo.begin(stored.limbo_below)
        answer = AnswerEra(event.call, stored.era, ReadStatus.OK)
        no_ledger = StorageLedger(LedgerId(0))
        return self._answers.answer_when_synced(PendingAnswer(self._answers.lsn, no_ledger, (), answer))
