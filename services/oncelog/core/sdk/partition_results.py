"""What is done on several partitions of a topic may fail on some of them: one error then says what was done.

the outcome of a partition is unknown            deadline_exceeded: the request may have been carried out there
otherwise, an error that says why it was not     that error; it names how many partitions were done
nothing but missing subscriptions                not found
"""

from collections.abc import Mapping

from oncelog.core.errors import DeadlineExceeded, OncelogError, SubscriptionNotFound
from oncelog.core.names import TopicName


def error_of_partitions(failed: Mapping[TopicName, OncelogError], *, done: int) -> OncelogError:
    """One error for all. failed: the error of each partition that failed, one at least. done: the number of others."""
    # A definite answer would be wrong while one partition may have done it, and "not found" while one has not answered.
    unknown = [topic for topic, error in failed.items() if isinstance(error, DeadlineExceeded)]
    others = [topic for topic, error in failed.items() if not isinstance(error, SubscriptionNotFound)]
    first = min(unknown or others or failed, key=lambda topic: topic.partition or 0)
    error, of_unknown = failed[first], f", unknown on {len(unknown)}" if unknown else ""
    count = done + len(failed)
    counts = f"done on {done} of {count} partitions, failed on {len(failed) - len(unknown)}{of_unknown}"
    return type(error)(f"{counts}; {first}: {error.message}", **error.details)
