"""The requests of Kafka's protocol that a door knows, and their versions.

No version above these is offered, so clients use no topic ids and no fetch sessions by them. The lowest version of
Produce is offered for clients that ask whether a broker compresses (librdkafka). Below version 3 a request is refused:
batches of earlier formats are not stored.
"""

from typing import NamedTuple


class Versions(NamedTuple):
    """Both inclusive."""

    first: int
    last: int


KNOWN = {
    "Produce": Versions(0, 8),
    "Fetch": Versions(4, 11),
    "ListOffsets": Versions(1, 5),
    "Metadata": Versions(0, 8),
    "OffsetCommit": Versions(2, 7),
    "OffsetFetch": Versions(1, 5),
    "FindCoordinator": Versions(0, 2),
    "JoinGroup": Versions(0, 5),
    "Heartbeat": Versions(0, 3),
    "LeaveGroup": Versions(0, 3),
    "SyncGroup": Versions(0, 3),
    "DescribeGroups": Versions(0, 4),
    "ListGroups": Versions(0, 2),
    "SaslHandshake": Versions(1, 1),
    "ApiVersions": Versions(0, 3),
    "CreateTopics": Versions(0, 4),
    "DeleteTopics": Versions(0, 3),
    "DeleteRecords": Versions(0, 1),
    "InitProducerId": Versions(0, 4),
    "DescribeAcls": Versions(1, 2),
    "DescribeConfigs": Versions(0, 3),
    "AlterConfigs": Versions(0, 1),
    "DescribeLogDirs": Versions(0, 1),
    "SaslAuthenticate": Versions(0, 1),
    "CreatePartitions": Versions(0, 1),
    "IncrementalAlterConfigs": Versions(0, 0),
    "DescribeProducers": Versions(0, 0),
    "DeleteGroups": Versions(0, 1),
    "OffsetDelete": Versions(0, 0),
}
