"""The age of a stream's newest round trip, counted from its start, shows whether it responded until it closed."""

from oncelog.metadata.owners.connected_owner import ANSWERED_MS_MAX, HEARTBEAT_INTERVAL_MS, Heartbeats
from oncelog.rpc.options import channel_options


def test_heartbeats_are_due_at_once_and_then_at_intervals() -> None:
    """The first heartbeat shows early whether the stream responds."""
    heartbeats = Heartbeats()
    assert heartbeats.due_ms(1_000) == 0
    heartbeats.sent(1_000)
    assert heartbeats.due_ms(1_100) == HEARTBEAT_INTERVAL_MS - 100
    assert heartbeats.due_ms(99_000) == 0


def test_age_of_a_round_trip_counts_from_its_start() -> None:
    """A late response, or one that is read late, proves no more than the time when its heartbeat was sent."""
    heartbeats = Heartbeats()
    assert not heartbeats.answered_recently(0)
    number = heartbeats.sent(1_000)
    assert not heartbeats.answered_recently(1_000)
    heartbeats.answered(number)
    assert heartbeats.answered_recently(1_000 + ANSWERED_MS_MAX)
    assert not heartbeats.answered_recently(1_001 + ANSWERED_MS_MAX)


def test_numbers_of_unsent_heartbeats_are_ignored() -> None:
    """An owner also sends without a request, which proves nothing about the other direction."""
    heartbeats = Heartbeats()
    heartbeats.sent(1_000)
    for number in (0, 2, 77):
        heartbeats.answered(number)
    assert not heartbeats.answered_recently(1_000)


def test_late_answer_does_not_replace_a_newer_one() -> None:
    """Responses come in order, and each number counts once."""
    heartbeats = Heartbeats()
    first, second = heartbeats.sent(1_000), heartbeats.sent(2_000)
    heartbeats.answered(second)
    heartbeats.answered(first)
    assert heartbeats.answered_recently(2_000 + ANSWERED_MS_MAX)


def test_keepalive_cannot_expire_while_heartbeats_are_answered() -> None:
    """A stream that closes this soon after a round trip was not closed by the keepalive timeout."""
    options = dict(channel_options(1))
    assert options["grpc.keepalive_timeout_ms"] >= 2 * ANSWERED_MS_MAX
    assert options["grpc.http2.ping_timeout_ms"] >= 2 * ANSWERED_MS_MAX
    assert ANSWERED_MS_MAX >= 2 * HEARTBEAT_INTERVAL_MS
