"""Statistics with Pulsar's names."""

from typing import Any

from oncelog_doors.core.rest.statistics import in_use, internal_stats, partitioned_stats, topic_stats

SUBSCRIPTION: dict[str, Any] = {
    "type": "key_shared",
    "msg_backlog": 7,
    "backlog_size": 700,
    "oldest_unacked_ms": 123,
    "unacked_messages": 3,
    "mark_delete": 4,
    "msg_out_counter": 9,
    "ack_state_bytes": 20,
    "ack_ranges": 2,
    "is_blocked_on_ack_state_persistent": False,
    "blocked": None,
    "active_consumer": None,
    "consumer_count": 1,
    "properties": {"a": "b"},
    "consumers": [
        {
            "consumer_name": "c",
            "msg_out_counter": 9,
            "available_permits": 5,
            "unacked_messages": 3,
            "connected_from": None,
        }
    ],
}
STATS: dict[str, Any] = {
    "owner_epoch": 2,
    "deduplication_enabled": True,
    "message_count": 10,
    "first_index": 2,
    "bytes": 500,
    "rate_in": 2.5,
    "rate_out": None,
    "entries_in_flight": 1,
    "subscriptions": {"s": SUBSCRIPTION},
}
PRODUCER = {"producer_id": 4, "name": "till", "connected_from": "10.0.0.1:5"}


def test_topic() -> None:
    found = topic_stats(STATS, [PRODUCER], "door:8080")
    assert (found["msgRateIn"], found["msgRateOut"]) == (2.5, 0.0)
    assert (found["msgInCounter"], found["msgOutCounter"], found["averageMsgSize"]) == (10, 9, 50.0)
    assert (found["storageSize"], found["backlogSize"], found["deduplicationStatus"]) == (500, 700, "Enabled")
    [publisher] = found["publishers"]
    assert (publisher["producerName"], publisher["address"]) == ("till", "10.0.0.1:5")
    off = topic_stats(STATS | {"deduplication_enabled": False}, [], "door:8080")
    assert off["deduplicationStatus"] == "Disabled"


def test_topic_without_an_owner() -> None:
    """It has no figures now."""
    found = topic_stats({"phase": "unowned"}, [], "door:8080")
    assert (found["msgInCounter"], found["averageMsgSize"], found["subscriptions"]) == (0, 0.0, {})


def test_subscription() -> None:
    found = topic_stats(STATS, [], "")["subscriptions"]["s"]
    assert (found["msgBacklog"], found["unackedMessages"], found["type"]) == (7, 3, "Key_Shared")
    assert found["isBlockedOnAckStatePersistent"] is False
    assert "activeConsumerName" not in found
    assert "blockedOnAckStatePersistent" not in found
    [consumer] = found["consumers"]
    assert (consumer["consumerName"], consumer["availablePermits"], consumer["address"]) == ("c", 5, "")
    assert consumer["blockedConsumerOnUnackedMsgs"] is False
    blocked = SUBSCRIPTION | {
        "is_blocked_on_ack_state_persistent": True,
        "blocked": {"since_ms": 1},
        "consumer_count": 0,
        "active_consumer": "c",
        "backlog_size": None,
        "oldest_unacked_ms": None,
    }
    found = topic_stats(STATS | {"subscriptions": {"s": blocked}}, [], "")["subscriptions"]["s"]
    assert found["isBlockedOnAckStatePersistent"] is True
    assert found["blockedOnAckStatePersistent"] == {"since_ms": 1}
    assert [each["blockedConsumerOnUnackedMsgs"] for each in found["consumers"]] == [True]
    # The next consumer chooses the type.
    assert (found["type"], found["activeConsumerName"], found["backlogSize"]) == ("None", "c", 0)


def test_partitions_are_added() -> None:
    one = topic_stats(STATS, [PRODUCER], "")
    blocked = SUBSCRIPTION | {"is_blocked_on_ack_state_persistent": True}
    other = topic_stats(
        STATS | {"deduplication_enabled": False, "subscriptions": {"s": blocked, "t": SUBSCRIPTION}}, [PRODUCER], ""
    )
    found = partitioned_stats({"a": one, "b": other}, 3, each=False)
    assert (found["msgInCounter"], found["msgRateIn"], found["averageMsgSize"]) == (20, 5.0, 50.0)
    assert found["deduplicationStatus"] == "Disabled"
    assert found["metadata"] == {"partitions": 3, "deleted": False}
    assert (found["partitions"], len(found["publishers"])) == ({}, 1)
    both, alone = found["subscriptions"]["s"], found["subscriptions"]["t"]
    assert (both["msgBacklog"], both["unackedMessages"], len(both["consumers"])) == (14, 6, 2)
    assert both["isBlockedOnAckStatePersistent"] is True
    assert alone["msgBacklog"] == 7
    assert partitioned_stats({"a": one}, 1, each=True)["partitions"] == {"a": one}
    assert partitioned_stats({}, 2, each=True)["averageMsgSize"] == 0.0


def test_ledgers() -> None:
    internal = {
        "ledgers": [{"ledger_id": 5, "base_index": 0}, {"ledger_id": 7, "base_index": 4}],
        "open_ledger": {"state": "open", "ledger_id": 7, "last_add_confirmed": 3, "entries": 4, "bytes": 200},
    }
    found = internal_stats(internal, STATS)
    assert [each["ledgerId"] for each in found["ledgers"]] == [5, 7]
    assert (found["lastConfirmedEntry"], found["state"]) == ("7:3", "LedgerOpened")
    assert (found["entriesAddedCounter"], found["numberOfEntries"]) == (10, 8)
    assert (found["currentLedgerEntries"], found["currentLedgerSize"]) == (4, 200)
    assert found["cursors"]["s"]["numberOfEntriesSinceFirstNotAckedMessage"] == 7
    assert internal_stats({}, {})["lastConfirmedEntry"] == "-1:-1"


def test_topic_is_in_use_while_somebody_is_connected() -> None:
    assert not in_use({"phase": "unowned"})
    assert not in_use({"connected_producer_count": 0, "subscriptions": {"s": SUBSCRIPTION | {"consumer_count": 0}}})
    assert in_use({"connected_producer_count": 1})
    assert in_use(STATS)
