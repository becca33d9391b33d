"""The audit of a log whose ledgers begin with heads."""

from dataclasses import replace

import pytest
from crc32c import crc32c

from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.head import LedgerHead, encode_head
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.verify.stored_log import parse_entry
from oncelog.verify.violation import Violation
from tests.contract.proof.planted_log import PlantedLog, check_log
from tests.oracles.fold import LogFold

HEAD = LedgerHead("public/default/t", (Incarnation("a" * 32),), 1, 1, Incarnation("0" * 32))


def headed_log() -> PlantedLog:
    log = PlantedLog()
    log.append(EntryKind.HEAD_LOG, encode_head(HEAD))
    log.open("a")
    log.store("a", range(3))
    log.roll(epoch=2)
    log.append(EntryKind.HEAD_LOG, encode_head(replace(HEAD, former=Position(LedgerId(1), EntryId(2)))))
    log.store("a", [5])
    log.roll()
    log.append(EntryKind.HEAD_LOG, encode_head(replace(HEAD, former=Position(LedgerId(2), EntryId(1)))))
    return log


def folded(log: PlantedLog) -> LogFold:
    fold = LogFold()
    for position, data in log.entries.items():
        fold.add(parse_entry(data, position, crc32c))
    return fold


def test_audit_passes_over_heads() -> None:
    """However the log is split into ranges."""
    log = headed_log()
    for place in range(len(log.entries)):
        assert check_log(log, *([place] if place else [])).findings == [], place


def test_fold_of_the_tests_stays_where_it_is_for_a_head() -> None:
    fold = folded(headed_log())
    assert (fold.position, fold.next_index) == (Position(LedgerId(2), EntryId(1)), 4)


def test_head_inside_a_ledger_is_found() -> None:
    """Only the first entry of a ledger says whose it is."""
    log = headed_log()
    position = log.append(EntryKind.HEAD_LOG, encode_head(HEAD))
    (found,) = check_log(log).findings
    assert (found.rule, found.position) == ("head", position)
    with pytest.raises(Violation, match="not the first entry"):
        folded(log)


@pytest.mark.parametrize("kind", [EntryKind.HEAD_ACKS, EntryKind.HEAD_SNAPSHOTS])
def test_head_of_another_chain_is_no_entry_of_a_log(kind: EntryKind) -> None:
    log = PlantedLog()
    position = log.append(kind, encode_head(HEAD))
    with pytest.raises(Violation, match="kind"):
        parse_entry(log.entries[position], position, crc32c)


def test_head_that_cannot_be_read_is_found() -> None:
    """A rebuild would not know the ledger's topic."""
    log = PlantedLog()
    position = log.append(EntryKind.HEAD_LOG, b"{}")
    with pytest.raises(Violation, match="head"):
        parse_entry(log.entries[position], position, crc32c)
