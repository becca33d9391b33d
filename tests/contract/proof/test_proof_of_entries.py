"""Entries of Pulsar's clients in the proof of a topic and in the audit: units have their place, and only once."""

import pytest
from crc32c import crc32c

from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.ids import Position, SequenceId
from oncelog.verify.remembered import RememberedBatch, difference
from oncelog.verify.stored_log import parse_entry
from oncelog.verify.violation import Violation
from tests.contract.proof.planted_log import PlantedLog, check_log
from tests.core.pulsar_entries import batched, encrypted, numbered, of_one_key, pack_pulsar, summed


def store(log: PlantedLog, entry: bytes) -> Position:
    """The entry of a client in a batch of producer p."""
    producer = log.producers["p"]
    entry = summed(entry, crc32c)
    messages = open_entry(entry)
    body = pack_pulsar(
        entry, messages, producer_id=producer.producer_id, generation=producer.generation, checksum=crc32c
    )
    position = log.append(EntryKind.MESSAGES, body, count=messages.count)
    producer.mark = SequenceId(max(producer.mark, messages.last))
    producer.remembered.append(
        RememberedBatch(producer.producer_id, messages.first, messages.last, messages.count, position, 0)
    )
    return position


def a_log() -> PlantedLog:
    log = PlantedLog()
    log.open("p")
    for entry in (
        of_one_key(numbered([0, 2, 4])),
        of_one_key(numbered([1, 3, 5])),
        batched(numbered([6, 8]), codec=2),
        encrypted(10, 15, count=4),
        encrypted(16, 19, count=4),
    ):
        store(log, entry)
    return log


@pytest.mark.hazard("batches-of-keys")
@pytest.mark.parametrize("cuts", [(), (2,), (1, 2, 3, 4, 5)])
def test_a_log_of_entries_is_sound_in_any_ranges(cuts: tuple[int, ...]) -> None:
    """Ids within units overlap with those of other units; by first and last id they ascend. The snapshot agrees."""
    log = a_log()
    checked = check_log(log, *cuts, snapshot=log.snapshot())
    assert checked.findings == []
    assert checked.joined.producers[log.producers["p"].producer_id].messages == 3 + 3 + 2 + 4 + 4


def test_a_unit_that_is_stored_twice_is_found() -> None:
    log = a_log()
    store(log, encrypted(10, 15, count=4))
    assert "once" in {finding.rule for finding in check_log(log).findings}


def test_a_snapshot_that_remembers_another_unit_is_found() -> None:
    log = a_log()
    position = list(log.entries)[4]
    entry = parse_entry(log.entries[position], position, crc32c)
    right = log.producers["p"].remembered[3]
    assert difference(right, entry) == ""
    for wrong in (right._replace(rows=3), right._replace(first=11), right._replace(last=14)):
        assert "the snapshot has ids" in difference(wrong, entry)


def test_values_are_read_and_hidden_ones_are_empty() -> None:
    """The audit reads every body: what cannot be read is a violation."""
    log = a_log()
    values = [parse_entry(data, position, crc32c).values for position, data in log.entries.items()]
    assert values[1:] == [
        [b"value 0", b"value 2", b"value 4"], [b"value 1", b"value 3", b"value 5"], [b"value 6", b"value 8"],
        [b""] * 4, [b""] * 4,
    ]  # fmt: skip
    position = store(log, batched(numbered([20, 21])))
    data = bytearray(log.entries[position])
    data[-1] ^= 1
    with pytest.raises(Violation):
        parse_entry(bytes(data), position, crc32c)
