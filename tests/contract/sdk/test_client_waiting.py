"""What a program that waits says of its reason: an outage, in one line for all of a client, or a misspelt name."""

import logging

import pytest

import oncelog
from oncelog.client.network import outages
from oncelog.client.network.outages import TOLD_AFTER_S, TOLD_EVERY_S, Outages
from oncelog.core.errors import DeadlineExceeded, ServiceUnavailable
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
DEADLINE_S = 30.0
REFUSED = ServiceUnavailable("cannot reach 127.0.0.1:1")
BACK = "all producers and consumers of this client continue"


class Session:
    """Has no meaning here."""


def test_line_comes_after_a_takeover_would_be_over_and_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """With a thousand producers, a thousand lines would hide what else a program says."""
    of_client, first, second = Outages(), Session(), Session()
    for now_s in (0.0, TOLD_AFTER_S - 0.1, TOLD_AFTER_S, TOLD_AFTER_S + 1, TOLD_AFTER_S + TOLD_EVERY_S):
        of_client.lasts(first, "producer p on t", REFUSED, now_s)
        of_client.lasts(second, "consumer of s on t", REFUSED, now_s)
    line = "producer p on t cannot continue yet, nor can 1 other one of this client: cannot reach 127.0.0.1:1"
    assert caplog.messages == [line, line]
    of_client.is_over(first, works=True)
    assert caplog.messages == [line, line]
    of_client.is_over(second, works=True)
    of_client.is_over(second, works=True)
    assert caplog.messages == [line, line, BACK]


def test_short_outage_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """A takeover is nothing that a user must know of. Each outage counts from its own begin."""
    of_client, session = Outages(), Session()
    for began_s in (0.0, 100.0):
        of_client.lasts(session, "producer p on t", REFUSED, began_s)
        of_client.lasts(session, "producer p on t", REFUSED, began_s + TOLD_AFTER_S / 2)
        of_client.is_over(session, works=True)
    assert not caplog.messages


def test_dropped_session_is_no_other_one(caplog: pytest.LogCaptureFixture) -> None:
    """A program may forget a producer without closing it."""
    of_client, left = Outages(), Session()
    of_client.lasts(Session(), "producer p on t", REFUSED, 0.0)
    of_client.lasts(left, "producer q on t", REFUSED, 0.0)
    of_client.lasts(left, "producer q on t", REFUSED, TOLD_AFTER_S)
    assert caplog.messages == ["producer q on t cannot continue yet: cannot reach 127.0.0.1:1"]


def test_program_that_ends_in_an_outage_is_not_said_to_continue(caplog: pytest.LogCaptureFixture) -> None:
    """It closes its producers. The next outage is told like the first one."""
    of_client, session = Outages(), Session()
    line = "producer p on t cannot continue yet: cannot reach 127.0.0.1:1"
    for began_s in (0.0, 10.0):
        of_client.lasts(session, "producer p on t", REFUSED, began_s)
        of_client.lasts(session, "producer p on t", REFUSED, began_s + TOLD_AFTER_S)
        of_client.is_over(session, works=False)
    assert caplog.messages == [line, line]


@pytest.mark.asyncio
async def test_running_producer_and_consumer_say_that_they_wait(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They printed nothing while the cluster was away, which looked like a hang."""
    monkeypatch.setattr(outages, "TOLD_AFTER_S", 0.1)
    caplog.set_level(logging.WARNING)
    producer = await client.create_producer("flights", producer_name="importer")
    await client.subscribe("flights", subscription="billing")
    await cluster.kill_owner()
    pending = producer.send_nowait(b"0")
    await until(lambda: "cannot continue yet, nor can 1 other one of this client: " in caplog.text, DEADLINE_S)
    (line,) = [each for each in caplog.messages if "cannot continue" in each]
    assert line.startswith(("producer importer on public/default/fl", "consumer of billing on public/default/fl"))
    assert BACK not in caplog.messages
    await cluster.take_over()
    assert (await pending).sequence_id == 0
    await until(lambda: BACK in caplog.messages, DEADLINE_S)


@pytest.mark.asyncio
async def test_wait_for_a_message_says_that_the_subscription_is_new(client: oncelog.AsyncClient) -> None:
    """A misspelt name is a new subscription, which has no message."""
    for text in ("; this consumer created the subscription: check its name, and `start`", ""):
        async with client.subscribe("flights", subscription="biling") as consumer:
            with pytest.raises(DeadlineExceeded) as late:
                await consumer.receive(timeout=0)
            assert late.value.message.endswith(f"arrived within 0 s{text}")
