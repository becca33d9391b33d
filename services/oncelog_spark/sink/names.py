"""Names that the sink makes: of producers, and of its hidden topics.

A producer of the target is `{producerPrefix}/{source partition}#{source id}` in mode position and `{producerPrefix}` in
mode batch, with `/{jobId}` behind the prefix for a batch write. The source id is the first half of the source topic's
id: a topic that is deleted and created anew begins its numbers again, and has other messages than before.

Hidden topics lie beside the target, in its namespace, and begin with `__sink.`; a hash of the target and the producer
distinguishes them.
"""

import hashlib

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import PRODUCER_CHARACTERS_MAX, parse_topic

HIDDEN = "__sink."
#: Batches that share a staging topic: few enough to delete them soon, many enough to make few topics.
BATCHES_PER_STAGE = 64
#: Tasks that run at once have neighbouring partitions, so up to this many of them have a staging topic each. The driver
#: reads a topic from the first row of an attempt to its last, with the rows of other tasks that used the topic then.
STAGE_SLOTS = 64
_SHOWN_CHARACTERS = 100
_ID_CHARACTERS = 16
NO_PARTITION = -1


def source_partition(topic: str, partition: int | None) -> str:
    """The full name of the topic or partition that a row was read from."""
    return topic if partition is None or partition == NO_PARTITION else f"{topic}-partition-{partition}"


def source_of(topic: str, partition: int | None, topic_id: str) -> str:
    """The source in a producer's name in mode position: the topic or partition that a row was read from, and its id."""
    return f"{source_partition(topic, partition)}#{topic_id[:_ID_CHARACTERS]}"


def producer_name(scope: str, source: str) -> str:
    """source: from `source_of`, or a producer's name in the rows. Raises InvalidArgument."""
    name = f"{scope}/{source}"
    if len(name) > PRODUCER_CHARACTERS_MAX:
        message = f"producer name {name[:60]}… has {len(name)} characters: use a shorter producerPrefix"
        raise InvalidArgument(message, field="producerPrefix", limit=PRODUCER_CHARACTERS_MAX)
    return name


def journal_topic(target: str, producer: str) -> str:
    """The journal of one producer of the target."""
    return _hidden(target, f"{target}\n{producer}", "journal")


def stage_number(batch_id: int) -> int:
    return batch_id // BATCHES_PER_STAGE


def stage_slot(partition: int) -> int:
    """The number of the staging topic that a task's partition uses."""
    return partition % STAGE_SLOTS


def stage_topic(target: str, scope: str, run_id: str, number: int, slot: int = 0) -> str:
    """The topic where tasks of a run stage rows: for each 64 batches one topic for each slot of partitions."""
    return _hidden(target, f"{target}\n{scope}\n{run_id}", f"stage.{number}.{slot}")


def stage_topics(target: str, scope: str, run_id: str, number: int) -> tuple[str, ...]:
    """All staging topics of these 64 batches."""
    return tuple(stage_topic(target, scope, run_id, number, slot) for slot in range(STAGE_SLOTS))


def _hidden(target: str, owner: str, kind: str) -> str:
    name = parse_topic(target)
    digest = hashlib.sha256(owner.encode()).hexdigest()[:24]
    return f"{name.namespace_name}/{HIDDEN}{name.local_full[:_SHOWN_CHARACTERS]}.{digest}.{kind}"
