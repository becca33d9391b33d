"""The audit of a log with messages in chunks: chunks are no messages. The fold of the tests knows whose they are."""

import pytest
from crc32c import crc32c

from oncelog.core.formats.batch import PayloadFormat, encode_batch
from oncelog.core.formats.chunks import ChunkName, ChunkNames, encode_chunk, encode_chunk_names
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import EntryId, LedgerId, SequenceId
from oncelog.verify.stored_log import parse_entry
from oncelog.verify.violation import Violation
from tests.contract.proof.planted_log import PlantedLog, check_log
from tests.oracles.fold import LogFold


def sent(log: PlantedLog, kind: EntryKind, payload: bytes, form: PayloadFormat, sequence: int) -> ChunkName:
    producer = log.producers["a"]
    batch = encode_batch(
        payload, producer_id=producer.producer_id, generation=producer.generation, first=sequence, last=sequence,
        count=1, publish_time_ms=1_000, checksum=crc32c, payload_format=form,
    )  # fmt: skip
    position = log.append(kind, batch, count=int(kind == EntryKind.MESSAGES))
    return ChunkName(position.entry_id, int.from_bytes(batch[4:8], "little"))


def log_of(*, lie: str = "") -> PlantedLog:
    """An orphan, a message in two chunks around another message, and one behind it."""
    log = PlantedLog()
    log.open("a")
    orphan = sent(log, EntryKind.CHUNK, encode_chunk(0, b"orphan"), PayloadFormat.CHUNK, 4)
    first = sent(log, EntryKind.CHUNK, encode_chunk(0, b"first "), PayloadFormat.CHUNK, 5)
    log.open("b")
    log.store("b", range(3))
    second = sent(log, EntryKind.CHUNK, encode_chunk(6, b"second"), PayloadFormat.CHUNK, 5)
    names = ChunkNames(LedgerId(1), 12, (first, second))
    names = {
        "": names,
        "chunk of another message": names._replace(chunks=(orphan, second)),
        "no chunk": names._replace(chunks=(first, ChunkName(EntryId(4), 1))),
        "other ledger": names._replace(ledger_id=LedgerId(7)),
        "other content": names._replace(chunks=(first, second._replace(checksum=1))),
        "other size": names._replace(value_bytes=13),
    }[lie]
    sent(log, EntryKind.MESSAGES, encode_values([b""]) + encode_chunk_names(names), PayloadFormat.CHUNKED, 5)
    log.producers["a"].mark = SequenceId(5)
    log.store("a", [6])
    return log


def folded(log: PlantedLog) -> LogFold:
    fold = LogFold()
    for position, data in log.entries.items():
        fold.add(parse_entry(data, position, crc32c))
    return fold


def test_audit_passes_over_chunks() -> None:
    """However the log is split into ranges. A chunk has no index, and its id is that of its message."""
    log = log_of()
    for place in range(len(log.entries)):
        checked = check_log(log, *([place] if place else []))
        assert checked.findings == [], place
    assert folded(log).next_index == log.next_index == 5


@pytest.mark.parametrize(
    "lie", ["chunk of another message", "no chunk", "other ledger", "other content", "other size"]
)  # fmt: skip
def test_fold_of_the_tests_finds_a_message_of_other_chunks(lie: str) -> None:
    """So a simulation or a cluster that stores such a message fails."""
    with pytest.raises(Violation, match="the message at"):
        folded(log_of(lie=lie))
