"""The requests of administrators, by name."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from oncelog_doors.kafka.asking import Asking
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.configs import alter_configs, describe_configs, incremental_alter_configs
from oncelog_doors.kafka.describing import describe_log_dirs, describe_producers
from oncelog_doors.kafka.topic_changes import create_partitions, create_topics, delete_records, delete_topics

ADMINISTRATION: Mapping[str, Callable[[Asking, Body], Coroutine[Any, Any, Body]]] = {
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "DeleteRecords": delete_records,
    "DescribeConfigs": describe_configs,
    "AlterConfigs": alter_configs,
    "DescribeLogDirs": describe_log_dirs,
    "CreatePartitions": create_partitions,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "DescribeProducers": describe_producers,
}
