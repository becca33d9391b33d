"""Who fenced whom, when, and from where: folded from the log, and bounded."""

import pytest

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.entry import (
    EntryKind,
    ProducerOpened,
    SequenceMode,
    body_of,
    decode_opened,
    encode_opened,
    peek_header,
)
from oncelog.core.formats.opening import Granted
from oncelog.core.ids import Generation, InstanceId, ProducerId, SequenceId
from oncelog.core.publishing.generation_history import (
    HISTORY_BYTES_MAX,
    HISTORY_MAX,
    GenerationRecord,
    read_history,
    with_generation,
)
from oncelog.core.publishing.producer_listing import generations_of
from oncelog.core.publishing.producer_record import decode_row, encode_record, encode_row, read_record
from oncelog.core.publishing.producer_state import ProducerState
from tests.core.builders import TOPIC, plain
from tests.core.publishing.expiry.test_expiry import leased
from tests.core.publishing.test_producer_listing import openings_of
from tests.core.topic.test_topic import serving
from tests.core.topic.topic_world import Owner


def instance(number: int) -> InstanceId:
    return InstanceId(number.to_bytes(16, "big"))


def history(owner: Owner, pid: int) -> list[tuple[int, int, str, str]]:
    found = generations_of(openings_of(owner), ProducerId(pid))
    return [(each.generation, each.at_ms, each.role, each.address) for each in found]


def opened(owner: Owner, number: int, **fields: object) -> Granted:
    return owner.open("p", instance_id=instance(number), **fields)


def test_history_says_who_fenced_whom_and_survives_a_takeover() -> None:
    """From the log alone."""
    world, owner = serving()
    opened(owner, 1, role="importer", peer="10.0.0.1:5000")
    owner.now_ms = 7_000
    opened(owner, 2, role="root", peer="10.0.0.2:6000")
    wanted = [(1, 0, "importer", "10.0.0.1:5000"), (2, 7_000, "root", "10.0.0.2:6000")]
    assert history(owner, 1) == wanted
    other = Owner(world, "o2").take_over()
    assert history(other, 1) == wanted
    assert other.core.serving is not None
    assert plain(other.core.serving.log.table.state) == plain(world.folded())


def test_resume_and_repeat_are_no_new_generations() -> None:
    """Nobody is fenced by them."""
    _, owner = serving()
    granted = opened(owner, 1, peer="10.0.0.1:5000")
    opened(owner, 1, peer="10.0.0.1:5001")
    owner.open("p", resume=granted.instance, instance_id=instance(1), peer="10.0.0.1:5002")
    assert [each[0] for each in history(owner, 1)] == [1]


def test_lease_is_in_the_history() -> None:
    _, owner = serving()
    new = leased(owner, peer="10.0.0.1:5000")
    (record,) = generations_of(openings_of(owner), new.instance.producer_id)
    assert (record.leased, record.address) == (True, "10.0.0.1:5000")


def test_history_keeps_the_last_generations() -> None:
    """Of a program that is restarted again and again."""
    _, owner = serving()
    for number in range(HISTORY_MAX + 5):
        opened(owner, number + 1, peer=f"10.0.0.1:{number}")
    assert [each[0] for each in history(owner, 1)] == list(range(6, HISTORY_MAX + 6))


def test_long_roles_shorten_the_history_and_the_newest_generation_stays() -> None:
    packed = b""
    for number in range(1, 8):
        packed = with_generation(packed, GenerationRecord(Generation(number), number, False, "r" * 255, "a" * 255))
        assert len(packed) <= HISTORY_BYTES_MAX
        assert read_history(packed)[-1].generation == number
    huge = GenerationRecord(Generation(9), 9, False, "r" * 2_000, "")
    assert read_history(with_generation(packed, huge)) == [huge]


def test_grant_to_an_unknown_address_has_none() -> None:
    """It says nothing about where the opener was. The history begins with the first grant that does."""
    world, owner = serving()
    opened(owner, 1)
    for link in world.links:
        for data in world.entries_of(link.ledger_id).values():
            if peek_header(data).kind == EntryKind.PRODUCER_OPENED:
                assert decode_opened(body_of(data)).address is None
    assert history(owner, 1) == []
    opened(owner, 2, peer="10.0.0.2:5000")
    (shown,) = generations_of(openings_of(owner), ProducerId(1))
    assert (shown.generation, shown.address) == (2, "10.0.0.2:5000")


@pytest.mark.parametrize("peer", ["x" * 300, "unix:/run/äö"])
def test_any_address_fits(peer: str) -> None:
    """The owner's own state and that of a replay are the same."""
    world, owner = serving()
    opened(owner, 1, peer=peer)
    (shown,) = history(owner, 1)
    assert len(shown[3]) <= 255
    assert history(Owner(world, "o2").take_over(), 1) == [shown]


@pytest.mark.parametrize("lifetime_ms", [0, 5_000])
@pytest.mark.parametrize("address", [None, "", "10.0.0.1:5000"])
def test_grant_round_trips_and_is_refused_when_it_is_cut(address: str | None, lifetime_ms: int) -> None:
    """Without an address and a lifetime nothing follows the body, and the byte of the mode is the mode."""
    grant = ProducerOpened(
        TOPIC, "näme", ProducerId(5), Generation(2), SequenceMode.MONOTONIC, SequenceId(7), role="importer",
        address=address, lifetime_ms=lifetime_ms,
    )  # fmt: skip
    body = encode_opened(grant)
    assert decode_opened(body) == grant
    for wrong in (body[:-1], body + b"x"):
        with pytest.raises(CorruptEntry):
            decode_opened(wrong)
    if address is None and not lifetime_ms:
        assert body[28] == SequenceMode.MONOTONIC


@pytest.mark.parametrize("active_at_ms", [0, 9])
def test_record_with_a_history_round_trips(active_at_ms: int) -> None:
    """In a snapshot and as the row of an idle producer; a record that is cut is found."""
    record = GenerationRecord(Generation(2), 5, True, "importer", "10.0.0.1:5000")
    state = ProducerState("p", ProducerId(5), Generation(2), SequenceMode.MONOTONIC, active_at_ms=active_at_ms)
    plain_record = encode_record(state)
    state.history = with_generation(b"", record)
    data = encode_record(state)
    assert len(data) == len(plain_record) + 2 + len(state.history)
    assert plain_record[12] & 0x40 == 0
    decoded = decode_row("p", encode_row(state))
    assert read_history(decoded.history) == [record]
    assert decoded.active_at_ms == active_at_ms
    row, end = read_record(b"before" + data + b"behind", 6)
    assert end == 6 + len(data)
    assert decode_row(row.name, row.row).history == state.history
    for cut in range(1, len(data)):
        with pytest.raises(CorruptEntry):
            read_record(data[:cut], 0)
