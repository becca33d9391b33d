"""The options of writing, and the columns that may be written. Pure, and quick to import: each batch is planned in a
process of its own.

All columns of the source are accepted, so that rows that were read can be written. The columns with a row's position in
the source are its identity in mode position; they never determine its destination.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from oncelog.client.network.addresses import parse_http_url
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import check_producer_name, parse_namespace, parse_topic
from oncelog_spark.options import (
    ConnectionOptions,
    Given,
    GivenOptions,
    Option,
    checked,
    choice,
    either,
    integer,
    names_of,
)
from oncelog_spark.sink.names import HIDDEN

TOPIC = "topic"
PRODUCER_PREFIX = "producerPrefix"
MODE = "mode"
JOB_ID = "jobId"
ON_NEW_CHECKPOINT = "onNewCheckpoint"
STATE_NAMESPACE = "stateNamespace"
ADMIN_URL = "adminUrl"
SEND_TIMEOUT = "sendTimeoutSeconds"
#: Spark's own options, which it passes on.
CHECKPOINT = "checkpointLocation"
SPARK_NAMES = (CHECKPOINT, "queryName")
SEND_TIMEOUT_S = 120
ROWS_CLAIMED = 10_000
DEFAULT_NAMESPACE = "public/default"
#: Leaves room in a producer's name for the source's name behind the prefix.
PREFIX_CHARACTERS_MAX = 100


class Mode(StrEnum):
    """What identifies a row over replays."""

    POSITION = "position"
    BATCH = "batch"


NAME = checked(check_producer_name, PREFIX_CHARACTERS_MAX)
_ADMIN_HELP = "REST address, to delete the staging topic; without it the topic stays."


def _admin_url(given: Given) -> str:
    return parse_http_url(given.text, given.label)


AdminUrl = Annotated[
    str | None,
    Option(ADMIN_URL, _admin_url, "--admin-url", _ADMIN_HELP, variable="ONCELOG_ADMIN_URL", variable_shown=True),
]
SendTimeout = Annotated[
    int, Option(SEND_TIMEOUT, integer(1, 86_400), "--send-timeout", "Timeout of each step, in seconds [120].")
]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Plain values: they are sent to executors. job_id: None for a stream. continues: onNewCheckpoint=continue.
    topic: the target; where each row names its own topic, a name for all of them, beside the hidden topics.
    by_columns: destination=columns. by_row: each row names its topic. keeps_stored: onChangedReplay=keep.
    checkpoint: as the query names it; None: not known."""

    connection: ConnectionOptions
    topic: str
    prefix: Annotated[str, Option(PRODUCER_PREFIX, NAME, required="a stable name of this query or family of jobs")]
    mode: Annotated[Mode, Option(MODE, choice(*Mode))] = Mode.POSITION
    by_columns: Annotated[bool, Option("destination", either("option", "columns", true="columns"))] = False
    by_row: bool = False
    job_id: Annotated[str | None, Option(JOB_ID, NAME)] = None
    continues: Annotated[bool, Option(ON_NEW_CHECKPOINT, either("error", "continue", true="continue"))] = False
    keeps_stored: Annotated[bool, Option("onChangedReplay", either("error", "keep", true="keep"))] = False
    checkpoint: str | None = None
    admin_url: AdminUrl = None
    send_timeout_s: SendTimeout = SEND_TIMEOUT_S
    rows_per_claim: Annotated[int, Option("rowsPerClaim", integer(1, 100_000))] = ROWS_CLAIMED

    @property
    def target(self) -> str | None:
        """The topic of all rows; None: each row names its own."""
        return None if self.by_row else self.topic

    @property
    def scope(self) -> str:
        """The prefix of producers' names: each job has names of its own."""
        return self.prefix if self.job_id is None else f"{self.prefix}/{self.job_id}"


_TOPIC = Option(TOPIC, checked(parse_topic), required="the topic to write to")
NAMES = (TOPIC, STATE_NAMESPACE, *names_of(SinkOptions))


def sink_options(given: Mapping[str, str], environment: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read all options of a write. Raises InvalidArgument, which names the option."""
    own = {name: value for name, value in given.items() if name.lower() not in map(str.lower, SPARK_NAMES)}
    options = GivenOptions(own, NAMES)
    values = options.values_of(SinkOptions, environment)
    if streaming and "job_id" in values:
        raise InvalidArgument(
            f"option {JOB_ID} is for batch writes only: the checkpoint identifies a stream", field=JOB_ID
        )
    if not streaming and options.text(ON_NEW_CHECKPOINT) is not None:
        message = f"option {ON_NEW_CHECKPOINT} is for streams only: the option {JOB_ID} identifies a batch write"
        raise InvalidArgument(message, field=ON_NEW_CHECKPOINT)
    if not streaming and "job_id" not in values:
        what = "the name that identifies this write when it is repeated, as a date or the id of a run"
        raise InvalidArgument(f"option {JOB_ID} is required: {what}", field=JOB_ID)
    by_row = values.get("by_columns", False) and options.text(TOPIC) is None
    if not by_row and options.text(STATE_NAMESPACE) is not None:
        message = f"option {STATE_NAMESPACE} is for rows that name their topics: here hidden topics lie beside {TOPIC}"
        raise InvalidArgument(message, field=STATE_NAMESPACE)
    return SinkOptions(
        topic=_state_topic(options) if by_row else options.value(_TOPIC, environment),
        by_row=by_row,
        checkpoint=_checkpoint(given) if streaming else None,
        **values,
    )


def _checkpoint(given: Mapping[str, str]) -> str | None:
    """Spark passes its own option on, in upper or lower case, as it was set."""
    return next((value for name, value in given.items() if name.lower() == CHECKPOINT.lower()), None)


def _state_topic(options: GivenOptions) -> str:
    """The name after which hidden topics are named where each row names its topic; no message is published there."""
    namespace = options.value(Option(STATE_NAMESPACE, checked(parse_namespace)), {}) or DEFAULT_NAMESPACE
    return f"{namespace}/{HIDDEN}by-row"


# --- columns ----------------------------------------------------------------------------------------------------------

_TEXT = ("string", "varchar", "char")
_NUMBER = ("bigint", "int", "smallint", "tinyint")
#: {column: Spark's types that it may have}
COLUMNS: dict[str, tuple[str, ...]] = {
    "value": ("binary", *_TEXT),
    "key": ("binary", *_TEXT),
    "event_time": ("timestamp",),
    "properties": ("map<string,string>",),
    "topic": _TEXT,
    "partition": _NUMBER,
    "topic_id": _TEXT,
    "index": _NUMBER,
    "producer_name": _TEXT,
    "sequence_id": _NUMBER,
    "ledger_id": _NUMBER,
    "entry_id": _NUMBER,
    "batch_index": _NUMBER,
    "publish_time": ("timestamp",),
    "producer_id": _NUMBER,
}


def check_columns(columns: Mapping[str, str], mode: Mode, *, by_columns: bool = False, by_row: bool = False) -> None:
    """columns: {name: Spark's simple name of its type}. Raises InvalidArgument, which names the column."""
    for name, kind in columns.items():
        if name not in COLUMNS:
            near = difflib.get_close_matches(name.lower(), sorted(COLUMNS), n=1, cutoff=0.0)[0]
            message = f"unknown column {name}; the most similar column is {near} ({' or '.join(COLUMNS[near])})"
            raise InvalidArgument(message, field=name)
        if kind.partition("(")[0] not in COLUMNS[name]:
            raise InvalidArgument(f"column {name} must be {' or '.join(COLUMNS[name])}, not {kind}", field=name)
    if "value" not in columns:
        raise InvalidArgument(
            "a column value (binary or string) is required: the content of the message", field="value"
        )
    if by_row and "topic" not in columns:
        raise InvalidArgument("destination=columns requires a column topic, or the option topic", field="topic")
    by_position, by_producer = (
        {"topic", "topic_id", "index"} <= set(columns),
        {"producer_name", "sequence_id"} <= set(columns),
    )
    if by_columns and mode is Mode.POSITION and not by_producer:
        raise InvalidArgument(
            "destination=columns with mode=position requires the columns producer_name and sequence_id, which identify "
            "a row after a replay: topic and partition are its destination",
            field="destination",
        )
    if mode is Mode.POSITION and not (by_position or by_producer):
        raise InvalidArgument(
            "mode=position requires the columns topic, topic_id and index (with partition for partitioned topics), or "
            "producer_name and sequence_id, which identify a row after a replay; without them use mode=batch",
            field="mode",
        )
