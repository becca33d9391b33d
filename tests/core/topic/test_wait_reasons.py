"""Why a topic is not served: which reason comes first, since when it holds, and which error clients get."""

import zlib

import pytest

from oncelog.core.chain.replay import TakeoverFailed
from oncelog.core.errors import CorruptEntry, EntriesLost, IdsExhausted, OncelogError, StoreUnavailable, TopicLoading
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.ids import Incarnation, LedgerId, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Phase, Topic
from oncelog.core.topic.wait_reasons import WaitReasons

RECORD = "the topic record"


def reasons(phase: Phase = Phase.READING) -> WaitReasons:
    core = Topic(
        TopicId("a" * 32), Incarnation("b" * 32), TopicSettings(), zlib.crc32, first_session=SessionNumber(1),
        nodes=StorageNodesUpdated(()),
    )  # fmt: skip
    core.phase = phase
    return WaitReasons(core)


def test_reason_keeps_its_time_while_it_stays_the_same() -> None:
    """Operators see for how long a topic has waited."""
    own = reasons()
    own.failed(RECORD, StoreUnavailable("no leader"))
    first = own.current(1_000)
    own.failed(RECORD, StoreUnavailable("no connection"))
    again = own.current(2_000)
    own.failed(RECORD, IdsExhausted("no id is left"))
    other = own.current(3_000)
    assert [each.since_ms for each in (first, again, other) if each is not None] == [1_000, 1_000, 3_000]


def test_failed_request_counts_until_it_is_answered() -> None:
    """Afterwards the topic waits for its takeover."""
    own = reasons()
    own.failed(RECORD, StoreUnavailable("no leader"))
    failed = own.current(0)
    own.answered(RECORD)
    answered = own.current(0)
    assert failed is not None
    assert answered is not None
    assert (failed.code, failed.message) == (StoreUnavailable.code, "the topic record: no leader")
    assert answered.code == TopicLoading.code


def test_client_gets_the_retriable_error_behind_the_reason_or_topic_loading() -> None:
    """An error that is not retriable would end the client, which should wait."""
    own = reasons()
    own.failed(RECORD, StoreUnavailable("no leader"))
    assert isinstance(own.error(0), StoreUnavailable)
    own.answered(RECORD)
    own.failure = TakeoverFailed("entries 3 to 5 are lost", EntriesLost.code, LedgerId(7))
    error = own.error(0)
    assert isinstance(error, TopicLoading)
    assert error.details["reason"] == EntriesLost.code


@pytest.mark.parametrize(
    "error", [CorruptEntry("topic record of format 9: this version reads formats 1 and 6"), UnknownFormat("format 9")]
)
def test_what_is_of_another_format_needs_another_version_and_no_backup(error: OncelogError) -> None:
    """A backup has it in the same format."""
    own = reasons()
    own.failed(RECORD, error)
    found = own.current(0)
    assert found is not None
    assert "start the version that has written" in found.help.partition("damaged")[0]
    assert "backup" not in found.help.partition("damaged")[0]


def test_topic_that_was_lost_waits_for_nothing() -> None:
    """Another owner serves it."""
    own = reasons(Phase.DEPOSED)
    own.failed(RECORD, StoreUnavailable("no leader"))
    assert own.current(0) is None
