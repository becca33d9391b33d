"""The messages of kafka-python, which has the same definitions and a codec of its own."""

import warnings
from importlib import import_module
from typing import Any

_MODULES = {
    "Produce": "producer.produce",
    "Fetch": "consumer.fetch",
    "ListOffsets": "consumer.offsets",
    "Metadata": "metadata.metadata",
    "OffsetCommit": "consumer.group",
    "OffsetFetch": "consumer.group",
    "FindCoordinator": "metadata.find_coordinator",
    "JoinGroup": "consumer.group",
    "Heartbeat": "consumer.group",
    "LeaveGroup": "consumer.group",
    "SyncGroup": "consumer.group",
    "DescribeGroups": "admin.groups",
    "ListGroups": "admin.groups",
    "SaslHandshake": "sasl",
    "ApiVersions": "metadata.api_versions",
    "CreateTopics": "admin.topics",
    "DeleteTopics": "admin.topics",
    "DeleteRecords": "admin.topics",
    "InitProducerId": "producer.transaction",
    "DescribeAcls": "admin.acl",
    "DescribeConfigs": "admin.configs",
    "AlterConfigs": "admin.configs",
    "DescribeLogDirs": "admin.cluster",
    "SaslAuthenticate": "sasl",
    "CreatePartitions": "admin.topics",
    "IncrementalAlterConfigs": "admin.configs",
    "DescribeProducers": "admin.transactions",
    "DeleteGroups": "admin.groups",
    "OffsetDelete": "consumer.group",
}


#: Fields that kafka-python reads into objects of its own; that they are read and written is compared as bytes.
_SPECIAL = frozenset(("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"))


def class_of(kind: str, api: str) -> Any:
    """kind: request or response."""
    with warnings.catch_warnings():
        # Of importlib.resources, where kafka-python reads its definitions.
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(import_module(f"kafka.protocol.{_MODULES[api]}"), f"{api}{kind.capitalize()}")


def body_of(theirs: Any, ours: Any) -> Any:
    """What kafka-python has read, in the form of a body here: the fields that `ours` has."""
    if isinstance(ours, dict):
        return {
            name: value if name in _SPECIAL else body_of(getattr(theirs, name), value) for name, value in ours.items()
        }
    if isinstance(ours, list):
        return [body_of(*each) for each in zip(theirs, ours, strict=True)]
    return theirs
