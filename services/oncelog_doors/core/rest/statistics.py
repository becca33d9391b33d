"""Statistics of topics and subscriptions with Pulsar's names, from those of this cluster's REST.

Fields that have no counterpart here are 0, empty or left out. Rates of single subscriptions and consumers are not
measured. `isBlockedOnAckStatePersistent` is the field that PIP-299 names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
#: Names of REST: those of Pulsar.
_TYPES = {"exclusive": "Exclusive", "shared": "Shared", "failover": "Failover", "key_shared": "Key_Shared"}
#: Fields of several partitions that are added.
_ADDED = (
    "msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut", "bytesInCounter", "msgInCounter",
    "bytesOutCounter", "msgOutCounter", "storageSize", "backlogSize", "msgBacklog", "unackedMessages",
    "msgRateRedeliver", "consumersCount", "numberOfEntries", "totalSize",
)  # fmt: skip


def topic_stats(stats: Json, publishers: Sequence[Json], broker: str) -> dict[str, Any]:
    """stats: of one log. publishers: its connected producers. broker: the address of the door."""
    subscriptions = {name: subscription_stats(each) for name, each in stats.get("subscriptions", {}).items()}
    count, size = stats.get("message_count", 0), stats.get("bytes", 0)
    return {
        "msgRateIn": stats.get("rate_in") or 0.0,
        "msgThroughputIn": 0.0,
        "msgRateOut": stats.get("rate_out") or 0.0,
        "msgThroughputOut": 0.0,
        "bytesInCounter": size,
        "msgInCounter": count,
        "bytesOutCounter": 0,
        "msgOutCounter": sum(each["msgOutCounter"] for each in subscriptions.values()),
        "averageMsgSize": size / count if count else 0.0,
        "msgChunkPublished": False,
        "storageSize": size,
        "backlogSize": max((each["backlogSize"] for each in subscriptions.values()), default=0),
        "offloadedStorageSize": 0,
        "waitingPublishers": 0,
        "publishers": [_publisher(each) for each in publishers],
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if stats.get("deduplication_enabled", True) else "Disabled",
        "topicEpoch": stats.get("owner_epoch", 0),
        "ownerBroker": broker,
        # Whether publishing waits for a backlog quota, and since when.
        "publishing": stats.get("publishing"),
    }


def subscription_stats(stats: Json) -> dict[str, Any]:
    blocked = stats["blocked"]
    return {
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "bytesOutCounter": 0,
        "msgOutCounter": stats["msg_out_counter"],
        "msgRateRedeliver": 0.0,
        "msgBacklog": stats["msg_backlog"],
        "backlogSize": stats["backlog_size"] or 0,
        "earliestMsgPublishTimeInBacklog": stats["oldest_unacked_ms"] or 0,
        "msgBacklogNoDelayed": stats["msg_backlog"],
        "msgDelayed": 0,
        "unackedMessages": stats["unacked_messages"],
        "blockedSubscriptionOnUnackedMsgs": False,
        "isBlockedOnAckStatePersistent": stats["is_blocked_on_ack_state_persistent"],
        **({} if blocked is None else {"blockedOnAckStatePersistent": dict(blocked)}),
        "type": _TYPES.get(stats["type"], "None") if stats["consumer_count"] else "None",
        **({"activeConsumerName": stats["active_consumer"]} if stats["active_consumer"] else {}),
        "consumers": [
            _consumer(each, withheld=stats["is_blocked_on_ack_state_persistent"]) for each in stats.get("consumers", ())
        ],
        "isDurable": True,
        "isReplicated": False,
        "allowOutOfOrderDelivery": False,
        "nonContiguousDeletedMessagesRanges": stats["ack_ranges"],
        "nonContiguousDeletedMessagesRangesSerializedSize": stats["ack_state_bytes"],
        "subscriptionProperties": dict(stats.get("properties", {})),
    }


def _publisher(producer: Json) -> dict[str, Any]:
    return {
        "producerId": producer["producer_id"],
        "producerName": producer["name"],
        "address": producer["connected_from"] or "",
        "accessMode": "Shared",
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "averageMsgSize": 0.0,
        "metadata": {},
    }


def _consumer(consumer: Json, *, withheld: bool) -> dict[str, Any]:
    return {
        "consumerName": consumer["consumer_name"],
        "msgRateOut": 0.0,
        "msgThroughputOut": 0.0,
        "msgOutCounter": consumer["msg_out_counter"],
        "msgRateRedeliver": 0.0,
        "availablePermits": consumer["available_permits"],
        "unackedMessages": consumer["unacked_messages"],
        "blockedConsumerOnUnackedMsgs": withheld,
        "address": consumer["connected_from"] or "",
        "metadata": {},
    }


def partitioned_stats(partitions: Mapping[str, Json], count: int, *, each: bool) -> dict[str, Any]:
    """The sums of several partitions. partitions: {full name: its statistics}, of those that were used. count: of all
    partitions. each: with the statistics of each, too."""
    subscriptions: dict[str, dict[str, Any]] = {}
    publishers: dict[str, Json] = {}
    for stats in partitions.values():
        publishers |= {one["producerName"]: one for one in stats["publishers"]}
        for name, one in stats["subscriptions"].items():
            if name in subscriptions:
                subscriptions[name] = _added(subscriptions[name], one) | {
                    "consumers": [*subscriptions[name]["consumers"], *one["consumers"]],
                    "isBlockedOnAckStatePersistent": subscriptions[name]["isBlockedOnAckStatePersistent"]
                    or one["isBlockedOnAckStatePersistent"],
                }
            else:
                subscriptions[name] = dict(one)
    total = _sum(partitions.values())
    messages = total.get("msgInCounter", 0)
    enabled = all(one["deduplicationStatus"] == "Enabled" for one in partitions.values())
    return {
        **total,
        "averageMsgSize": total.get("bytesInCounter", 0) / messages if messages else 0.0,
        "publishers": list(publishers.values()),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if enabled else "Disabled",
        "metadata": {"partitions": count, "deleted": False},
        "partitions": dict(partitions) if each else {},
    }


def _sum(all_stats: Iterable[Json]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for stats in all_stats:
        total = _added(total, {name: stats[name] for name in _ADDED if name in stats})
    return total


def _added(one: Json, other: Json) -> dict[str, Any]:
    return {**one, **other} | {name: one[name] + other[name] for name in _ADDED if name in one and name in other}


def internal_stats(internal: Json, stats: Json) -> dict[str, Any]:
    """Ledgers of one log. internal, stats: of this cluster's REST."""
    opened = internal.get("open_ledger") or {"state": "unowned"}
    ledger_id = opened.get("ledger_id", -1)
    return {
        "entriesAddedCounter": stats.get("message_count", 0),
        "numberOfEntries": stats.get("message_count", 0) - stats.get("first_index", 0),
        "totalSize": stats.get("bytes", 0),
        "currentLedgerEntries": opened.get("entries", 0),
        "currentLedgerSize": opened.get("bytes", 0),
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": stats.get("entries_in_flight", 0),
        "lastConfirmedEntry": f"{ledger_id}:{opened.get('last_add_confirmed', -1)}",
        "state": "LedgerOpened" if opened["state"] == "open" else opened["state"],
        "ledgers": [{"ledgerId": each["ledger_id"], "offloaded": False} for each in internal.get("ledgers", ())],
        # Of the ack log there is no position in the topic for each subscription: messages are acknowledged by number.
        "cursors": {
            name: {
                "messagesConsumedCounter": each["mark_delete"],
                "numberOfEntriesSinceFirstNotAckedMessage": each["msg_backlog"],
                "state": "Open",
                "active": bool(each["consumer_count"]),
                "properties": {},
            }
            for name, each in stats.get("subscriptions", {}).items()
        },
        "schemaLedgers": [],
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False},
    }


def in_use(stats: Json) -> bool:
    """Whether a producer or a consumer is connected, so that the topic is not deleted without force."""
    consumers = sum(each["consumer_count"] for each in stats.get("subscriptions", {}).values())
    return bool(stats.get("connected_producer_count", 0) or consumers)
