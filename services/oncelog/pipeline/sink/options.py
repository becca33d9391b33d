"""The options of writing, and the columns that may be written. Pure, and quick to import: each batch is planned in a
process of its own.

All columns of the source are accepted, so that rows that were read can be written. The columns with a row's position in
the source are its identity in mode position; they never determine its destination.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import check_producer_name, parse_namespace, parse_topic
from oncelog.pipeline import options as connection
from oncelog.pipeline.options import ConnectionOptions, GivenOptions, connection_options
from oncelog.pipeline.sink.names import HIDDEN

TOPIC = "topic"
PRODUCER_PREFIX = "producerPrefix"
MODE = "mode"
JOB_ID = "jobId"
ON_NEW_CHECKPOINT = "onNewCheckpoint"
ON_CHANGED_REPLAY = "onChangedReplay"
DESTINATION = "destination"
STATE_NAMESPACE = "stateNamespace"
ADMIN_URL = "adminUrl"
SEND_TIMEOUT = "sendTimeoutSeconds"
ROWS_PER_CLAIM = "rowsPerClaim"
NAMES = (
    *connection.NAMES,
    TOPIC,
    PRODUCER_PREFIX,
    MODE,
    JOB_ID,
    ON_NEW_CHECKPOINT,
    ON_CHANGED_REPLAY,
    DESTINATION,
    STATE_NAMESPACE,
    ADMIN_URL,
    SEND_TIMEOUT,
    ROWS_PER_CLAIM,
)
#: Spark's own options, which it passes on.
CHECKPOINT = "checkpointLocation"
SPARK_NAMES = (CHECKPOINT, "queryName")
ADMIN_URL_VARIABLE = "ONCELOG_ADMIN_URL"
SEND_TIMEOUT_S = 120
SEND_TIMEOUT_S_MAX = 86_400
ROWS_CLAIMED = 10_000
ROWS_CLAIMED_MAX = 100_000
DEFAULT_NAMESPACE = "public/default"
#: Leaves room in a producer's name for the source's name behind the prefix.
PREFIX_CHARACTERS_MAX = 100


class Mode(StrEnum):
    """What identifies a row over replays."""

    POSITION = "position"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Plain values: they are sent to executors. job_id: None for a stream. continues: onNewCheckpoint=continue.
    topic: the target; where each row names its own topic, a name for all of them, beside the hidden topics.
    by_columns: destination=columns. by_row: each row names its topic. keeps_stored: onChangedReplay=keep.
    checkpoint: as the query names it; None: not known."""

    connection: ConnectionOptions
    topic: str
    prefix: str
    mode: Mode
    by_columns: bool = False
    by_row: bool = False
    job_id: str | None = None
    continues: bool = False
    keeps_stored: bool = False
    checkpoint: str | None = None
    admin_url: str | None = None
    send_timeout_s: int = SEND_TIMEOUT_S
    rows_per_claim: int = ROWS_CLAIMED

    @property
    def target(self) -> str | None:
        """The topic of all rows; None: each row names its own."""
        return None if self.by_row else self.topic

    @property
    def scope(self) -> str:
        """The prefix of producers' names: each job has names of its own."""
        return self.prefix if self.job_id is None else f"{self.prefix}/{self.job_id}"


def sink_options(given: Mapping[str, str], environment: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read all options of a write. Raises InvalidArgument, which names the option."""
    own = {name: value for name, value in given.items() if name.lower() not in map(str.lower, SPARK_NAMES)}
    options = GivenOptions(own, NAMES)
    job_id = options.text(JOB_ID)
    if streaming and job_id is not None:
        raise InvalidArgument(
            f"option {JOB_ID} is for batch writes only: the checkpoint identifies a stream", field=JOB_ID
        )
    if not streaming and options.text(ON_NEW_CHECKPOINT) is not None:
        message = f"option {ON_NEW_CHECKPOINT} is for streams only: the option {JOB_ID} identifies a batch write"
        raise InvalidArgument(message, field=ON_NEW_CHECKPOINT)
    by_columns = options.choice(DESTINATION, ("option", "columns"), default="option") == "columns"
    by_row = by_columns and options.text(TOPIC) is None
    if not by_row and options.text(STATE_NAMESPACE) is not None:
        message = f"option {STATE_NAMESPACE} is for rows that name their topics: here hidden topics lie beside {TOPIC}"
        raise InvalidArgument(message, field=STATE_NAMESPACE)
    return SinkOptions(
        connection=connection_options(options, environment),
        topic=_state_topic(options) if by_row else _topic(_needed(options, TOPIC, "the topic to write to")),
        by_columns=by_columns,
        by_row=by_row,
        prefix=_prefix(options),
        mode=Mode(options.choice(MODE, list(Mode), default=Mode.POSITION)),
        job_id=None if streaming else _job_id(options),
        continues=options.choice(ON_NEW_CHECKPOINT, ("error", "continue"), default="error") == "continue",
        keeps_stored=options.choice(ON_CHANGED_REPLAY, ("error", "keep"), default="error") == "keep",
        checkpoint=_checkpoint(given) if streaming else None,
        admin_url=options.text(ADMIN_URL) or environment.get(ADMIN_URL_VARIABLE) or None,
        send_timeout_s=options.integer(SEND_TIMEOUT, least=1, most=SEND_TIMEOUT_S_MAX) or SEND_TIMEOUT_S,
        rows_per_claim=options.integer(ROWS_PER_CLAIM, least=1, most=ROWS_CLAIMED_MAX) or ROWS_CLAIMED,
    )


def _checkpoint(given: Mapping[str, str]) -> str | None:
    """Spark passes its own option on, in upper or lower case, as it was set."""
    return next((value for name, value in given.items() if name.lower() == CHECKPOINT.lower()), None)


def _needed(options: GivenOptions, name: str, what: str) -> str:
    value = options.text(name)
    if value is None:
        raise InvalidArgument(f"option {name} is required: {what}", field=name)
    return value.strip()


def _topic(text: str) -> str:
    try:
        return str(parse_topic(text))
    except OncelogError as error:
        raise InvalidArgument(f"option {TOPIC}: {error.message}", field=TOPIC) from error


def _state_topic(options: GivenOptions) -> str:
    """The name after which hidden topics are named where each row names its topic; no message is published there."""
    try:
        namespace = parse_namespace(options.text(STATE_NAMESPACE) or DEFAULT_NAMESPACE)
    except OncelogError as error:
        raise InvalidArgument(f"option {STATE_NAMESPACE}: {error.message}", field=STATE_NAMESPACE) from error
    return f"{namespace}/{HIDDEN}by-row"


def _prefix(options: GivenOptions) -> str:
    what = "a stable name of this query or family of jobs"
    return _name_part(PRODUCER_PREFIX, _needed(options, PRODUCER_PREFIX, what))


def _job_id(options: GivenOptions) -> str:
    what = "the name that identifies this write when it is repeated, as a date or the id of a run"
    return _name_part(JOB_ID, _needed(options, JOB_ID, what))


def _name_part(option: str, text: str) -> str:
    if len(text) > PREFIX_CHARACTERS_MAX:
        message = f"option {option} has {len(text)} characters, more than the limit of {PREFIX_CHARACTERS_MAX}"
        raise InvalidArgument(message, field=option, limit=PREFIX_CHARACTERS_MAX)
    try:
        return check_producer_name(text)
    except OncelogError as error:
        raise InvalidArgument(f"option {option}: {error.message}", field=option) from error


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
