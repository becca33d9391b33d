"""The options of reading. Pure: wrong options are refused before the cluster is contacted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import NamespaceName, parse_namespace, parse_topic
from oncelog.pipeline import options as connection
from oncelog.pipeline.options import ConnectionOptions, GivenOptions, connection_options
from oncelog.pipeline.sink.names import HIDDEN
from oncelog.pipeline.source.positions import Edge, PositionOption, parse_position, topic_of

TOPIC = "topic"
TOPICS = "topics"
TOPICS_PATTERN = "topicsPattern"
STARTING = "startingPosition"
ENDING = "endingPosition"
ROWS_MAX = "maxRowsPerBatch"
BYTES_MAX = "maxBytesPerBatch"
ROWS_PER_PARTITION = "rowsPerPartition"
COLUMNS = "columns"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
ON_CORRUPT = "onCorrupt"
CLOSED_LEDGERS = "closedLedgers"
NAMES = (
    *connection.NAMES,
    TOPIC,
    TOPICS,
    TOPICS_PATTERN,
    STARTING,
    ENDING,
    ROWS_MAX,
    BYTES_MAX,
    COLUMNS,
    ROWS_PER_PARTITION,
    FAIL_ON_DATA_LOSS,
    ON_CORRUPT,
    CLOSED_LEDGERS,
)
#: The columns of a row, in order.
COLUMN_NAMES = (
    "key",
    "value",
    "topic",
    "partition",
    "topic_id",
    "ledger_id",
    "entry_id",
    "batch_index",
    "index",
    "publish_time",
    "event_time",
    "producer_name",
    "sequence_id",
    "properties",
)
#: Where closed ledgers are read from.
STORAGE, OWNER = "storage", "owner"
#: What a task does with an entry that cannot be read.
RAISE, SKIP = "raise", "skip"
CLOSED_LEDGERS_VARIABLE = "ONCELOG_CLOSED_LEDGERS"
DEFAULT_NAMESPACE = "public/default"
ROWS_LIMIT = 2**62
PATTERN_CHARACTERS_MAX = 1000
#: Without the dot, which an expression may have as it is, escaped or in brackets.
_HIDDEN_NAMED = HIDDEN.rstrip(".")


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics of one namespace whose last element matches as a whole. Hidden topics of the sink match only an expression
    that begins with their prefix: journals and staged rows are not messages of an application."""

    namespace: NamespaceName
    expression: str

    def matches(self, topic: str) -> bool:
        """topic: a full name, not of a partition."""
        name = parse_topic(topic).local_full
        if name.startswith(HIDDEN) and not self.expression.removeprefix("^").startswith(_HIDDEN_NAMED):
            return False
        return re.fullmatch(self.expression, name) is not None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """topics: full names, or a pattern. rows_max, bytes_max: of one batch of a stream; rows_per_partition: of one task;
    None: no limit. ending: for batch reads only. columns: those that are read; None: all."""

    connection: ConnectionOptions
    topics: tuple[str, ...] | TopicPattern
    starting: PositionOption = Edge.EARLIEST
    ending: PositionOption = Edge.LATEST
    rows_max: int | None = None
    bytes_max: int | None = None
    rows_per_partition: int | None = None
    columns: tuple[str, ...] | None = None
    fail_on_data_loss: bool = True
    closed_from_storage: bool = True
    skip_corrupt: bool = False


def follows(topics: tuple[str, ...] | TopicPattern, topic: str) -> bool:
    """Whether a query with these options reads the topic, or partition. topic: a full name."""
    whole = topic_of(topic)
    return topics.matches(whole) if isinstance(topics, TopicPattern) else whole in topics or topic in topics


def source_options(given: Mapping[str, str], environment: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read all options of a query. Raises InvalidArgument, which names the option."""
    options = GivenOptions(given, NAMES)
    _refuse_foreign(options, streaming=streaming)
    topics = _topics(options)
    starting = parse_position(STARTING, options.text(STARTING) or Edge.EARLIEST)
    ending = parse_position(ENDING, options.text(ENDING) or Edge.LATEST)
    if ending is Edge.EARLIEST:
        raise InvalidArgument(f"option {ENDING} cannot be earliest: there is no message before it", field=ENDING)
    return SourceOptions(
        connection=connection_options(options, environment),
        topics=topics,
        starting=starting,
        ending=ending,
        rows_max=options.integer(ROWS_MAX, least=1, most=ROWS_LIMIT),
        bytes_max=options.integer(BYTES_MAX, least=1, most=ROWS_LIMIT),
        columns=columns_of(given),
        rows_per_partition=options.integer(ROWS_PER_PARTITION, least=1, most=ROWS_LIMIT),
        fail_on_data_loss=options.switch(FAIL_ON_DATA_LOSS, default=True),
        skip_corrupt=options.choice(ON_CORRUPT, (RAISE, SKIP), default=RAISE) == SKIP,
        closed_from_storage=_closed_ledgers(options, environment) == STORAGE,
    )


def columns_of(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """The option `columns`: names, separated by commas, in the order of the columns of a row; None: all columns.

    Raises InvalidArgument.
    """
    text = next((value for name, value in given.items() if name.lower() == COLUMNS.lower()), None)
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in COLUMN_NAMES:
            known = ", ".join(COLUMN_NAMES)
            raise InvalidArgument(
                f"option {COLUMNS} names {name!r}, which is not a column; the columns are {known}", field=COLUMNS
            )
    if len(set(names)) != len(names):
        raise InvalidArgument(f"option {COLUMNS} names a column twice: {text}", field=COLUMNS)
    return names


def _closed_ledgers(options: GivenOptions, environment: Mapping[str, str]) -> str:
    known = (STORAGE, OWNER)
    default = environment.get(CLOSED_LEDGERS_VARIABLE) or STORAGE
    if default not in known:
        message = f"the variable {CLOSED_LEDGERS_VARIABLE} must be one of {', '.join(known)}, not {default!r}"
        raise InvalidArgument(message, field=CLOSED_LEDGERS_VARIABLE)
    return options.choice(CLOSED_LEDGERS, known, default=default)


def _refuse_foreign(options: GivenOptions, *, streaming: bool) -> None:
    if streaming and options.text(ENDING) is not None:
        raise InvalidArgument(f"option {ENDING} is for batch reads only: a stream has no end", field=ENDING)
    for name in (ROWS_MAX, BYTES_MAX):
        if not streaming and options.text(name) is not None:
            raise InvalidArgument(f"option {name} is for streams only: a batch read is one batch", field=name)


def _topics(options: GivenOptions) -> tuple[str, ...] | TopicPattern:
    given = [name for name in (TOPIC, TOPICS, TOPICS_PATTERN) if options.text(name) is not None]
    if len(given) != 1:
        found = "none is set" if not given else f"{' and '.join(given)} are set"
        raise InvalidArgument(f"set one of the options {TOPIC}, {TOPICS}, {TOPICS_PATTERN}: {found}", field=TOPIC)
    text = options.text(given[0]) or ""
    if given[0] == TOPICS_PATTERN:
        return _pattern(text)
    names = text.split(",") if given[0] == TOPICS else [text]
    return tuple(sorted({_full_name(given[0], name.strip()) for name in names}))


def _full_name(option: str, text: str) -> str:
    try:
        return str(parse_topic(text))
    except OncelogError as error:
        raise InvalidArgument(f"option {option}: {error.message}", field=option) from error


def _pattern(text: str) -> TopicPattern:
    """`tenant/namespace/expression`, or `expression` alone for public/default. An expression has no slash."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        message = f"option {TOPICS_PATTERN} has at most {PATTERN_CHARACTERS_MAX} characters"
        raise InvalidArgument(message, field=TOPICS_PATTERN, limit=PATTERN_CHARACTERS_MAX)
    namespace, _, expression = text.strip().removeprefix("persistent://").rpartition("/")
    try:
        re.compile(expression)
        return TopicPattern(parse_namespace(namespace or DEFAULT_NAMESPACE), expression)
    except re.error as error:
        message = f"option {TOPICS_PATTERN} is not a regular expression: {error}"
        raise InvalidArgument(message, field=TOPICS_PATTERN) from error
    except OncelogError as error:
        raise InvalidArgument(f"option {TOPICS_PATTERN}: {error.message}", field=TOPICS_PATTERN) from error
