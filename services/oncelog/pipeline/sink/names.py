"""Names that the sink makes: of producers, and of its hidden topics.

A producer of the target is `{producerPrefix}/{source part}#{source id}` in mode position and `{producerPrefix}` in mode
batch, with `/{jobId}` behind the prefix for a batch write. The source id is the first half of the source topic's id: a
topic that is deleted and made anew begins its numbers again, and its messages are not those of before.

Hidden topics lie beside the target, in its namespace, and begin with `__sink.`; a hash of what they belong to makes
them differ.
"""

import hashlib

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import PRODUCER_CHARACTERS_MAX, parse_topic

HIDDEN = "__sink."
#: Batches that share a staging topic: few enough to be rid of them soon, many enough to make few topics.
BATCHES_PER_STAGE = 64
#: Tasks that run at once have neighbouring partitions, so up to so many of them have a staging topic each. The driver
#: reads a topic from the first row of an attempt to its last one, and so reads rows of tasks that shared it meanwhile.
STAGE_SLOTS = 64
_SHOWN_CHARACTERS = 100
_ID_CHARACTERS = 16
NO_PARTITION = -1


def source_part(topic: str, partition: int | None) -> str:
    """The full name of the topic or part that a row was read from."""
    return topic if partition is None or partition == NO_PARTITION else f"{topic}-partition-{partition}"


def source_of(topic: str, partition: int | None, topic_id: str) -> str:
    """What a producer is named after in mode position: the topic part that a row was read from, and its id."""
    return f"{source_part(topic, partition)}#{topic_id[:_ID_CHARACTERS]}"


def producer_name(scope: str, source: str) -> str:
    """source: see `source_of`, or a producer's name in the rows. Raises InvalidArgument."""
    name = f"{scope}/{source}"
    if len(name) > PRODUCER_CHARACTERS_MAX:
        message = f"producer name {name[:60]}… has {len(name)} characters: a shorter producerPrefix is needed"
        raise InvalidArgument(message, field="producerPrefix", limit=PRODUCER_CHARACTERS_MAX)
    return name


def journal_topic(target: str, producer: str) -> str:
    """The journal of one producer of the target."""
    return _hidden(target, f"{target}\n{producer}", "journal")


def stage_number(batch_id: int) -> int:
    return batch_id // BATCHES_PER_STAGE


def stage_slot(partition: int) -> int:
    """Which of the staging topics a task's partition uses."""
    return partition % STAGE_SLOTS


def stage_topic(target: str, scope: str, run_id: str, number: int, slot: int = 0) -> str:
    """Where tasks of a run stage rows: for each 64 batches one topic for each slot of partitions."""
    return _hidden(target, f"{target}\n{scope}\n{run_id}", f"stage.{number}.{slot}")


def stage_topics(target: str, scope: str, run_id: str, number: int) -> tuple[str, ...]:
    """All that there may be for these 64 batches."""
    return tuple(stage_topic(target, scope, run_id, number, slot) for slot in range(STAGE_SLOTS))


def _hidden(target: str, owner: str, kind: str) -> str:
    name = parse_topic(target)
    digest = hashlib.sha256(owner.encode()).hexdigest()[:24]
    return f"{name.namespace_name}/{HIDDEN}{name.local_full[:_SHOWN_CHARACTERS]}.{digest}.{kind}"
