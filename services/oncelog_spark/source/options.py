"""The options of reading. Pure: wrong options are refused before the cluster is contacted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import DOORS_PREFIX, NamespaceName, is_of_doors, parse_namespace, parse_topic
from oncelog_spark.options import (
    ConnectionOptions,
    Given,
    GivenOptions,
    Option,
    either,
    integer,
    names_of,
    switch,
)
from oncelog_spark.sink.names import HIDDEN
from oncelog_spark.source.positions import Edge, PositionOption, parse_position, topic_of

TOPIC = "topic"
TOPICS = "topics"
TOPICS_PATTERN = "topicsPattern"
STARTING = "startingPosition"
ENDING = "endingPosition"
ROWS_MAX = "maxRowsPerBatch"
BYTES_MAX = "maxBytesPerBatch"
COLUMNS = "columns"
ON_CORRUPT = "onCorrupt"
ON_ENCRYPTED = "onEncrypted"
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
    "producer_id",
)
#: Where closed ledgers are read from.
STORAGE, OWNER = "storage", "owner"
DEFAULT_NAMESPACE = "public/default"
ROWS_LIMIT = 2**62
PATTERN_CHARACTERS_MAX = 1000
#: Without the dot, which an expression may have as it is, escaped or in brackets.
_HIDDEN_NAMED = HIDDEN.rstrip(".")


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics of one namespace whose last element matches as a whole. Hidden topics of the sink match only an expression
    that begins with their prefix: journals and staged rows are not messages of an application. So do topics of the
    doors."""

    namespace: NamespaceName
    expression: str

    def matches(self, topic: str) -> bool:
        """topic: a full name, not of a partition."""
        name = parse_topic(topic).local_full
        begins = self.expression.removeprefix("^")
        if name.startswith(HIDDEN) and not begins.startswith(_HIDDEN_NAMED):
            return False
        if is_of_doors(name) and not begins.startswith(DOORS_PREFIX):
            return False
        return re.fullmatch(self.expression, name) is not None


def _position(given: Given) -> PositionOption:
    return parse_position(given.name, given.text)


_COUNT = integer(1, ROWS_LIMIT)
_LEDGERS_HELP = "Read closed ledgers from storage, or from owner if executors cannot reach storage nodes [storage]."
_LEDGERS = either(STORAGE, OWNER, true=STORAGE)
ClosedFromStorage = Annotated[
    bool, Option("closedLedgers", _LEDGERS, "--closed-ledgers", _LEDGERS_HELP, variable="ONCELOG_CLOSED_LEDGERS")
]


_ENCRYPTED_HELP = (
    "If a client of Pulsar has encrypted a message: raise an error, or pass it on with a null value and the property "
    "oncelog.encrypted [raise]."
)
PassesEncrypted = Annotated[
    bool, Option(ON_ENCRYPTED, either("raise", "pass", true="pass"), "--on-encrypted", _ENCRYPTED_HELP)
]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """topics: full names, or a pattern. rows_max, bytes_max: of one batch of a stream; rows_per_partition: of one task;
    None: no limit. ending: for batch reads only. columns: those that are read; None: all."""

    connection: ConnectionOptions
    topics: tuple[str, ...] | TopicPattern
    starting: Annotated[PositionOption, Option(STARTING, _position)] = Edge.EARLIEST
    ending: Annotated[PositionOption, Option(ENDING, _position)] = Edge.LATEST
    rows_max: Annotated[int | None, Option(ROWS_MAX, _COUNT)] = None
    bytes_max: Annotated[int | None, Option(BYTES_MAX, _COUNT)] = None
    columns: tuple[str, ...] | None = None
    rows_per_partition: Annotated[int | None, Option("rowsPerPartition", _COUNT)] = None
    fail_on_data_loss: Annotated[bool, Option("failOnDataLoss", switch)] = True
    skip_corrupt: Annotated[bool, Option(ON_CORRUPT, either("raise", "skip", true="skip"))] = False
    passes_encrypted: PassesEncrypted = False
    closed_from_storage: ClosedFromStorage = True


NAMES = (TOPIC, TOPICS, TOPICS_PATTERN, COLUMNS, *names_of(SourceOptions))


def follows(topics: tuple[str, ...] | TopicPattern, topic: str) -> bool:
    """Whether a query with these options reads the topic, or partition. topic: a full name."""
    whole = topic_of(topic)
    return topics.matches(whole) if isinstance(topics, TopicPattern) else whole in topics or topic in topics


def source_options(given: Mapping[str, str], environment: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read all options of a query. Raises InvalidArgument, which names the option."""
    options = GivenOptions(given, NAMES)
    _refuse_foreign(options, streaming=streaming)
    topics = topics_of(options)
    values = options.values_of(SourceOptions, environment)
    if values.get("ending") is Edge.EARLIEST:
        raise InvalidArgument(f"option {ENDING} cannot be earliest: there is no message before it", field=ENDING)
    return SourceOptions(topics=topics, columns=columns_of(given), **values)


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


def _refuse_foreign(options: GivenOptions, *, streaming: bool) -> None:
    if streaming and options.text(ENDING) is not None:
        raise InvalidArgument(f"option {ENDING} is for batch reads only: a stream has no end", field=ENDING)
    for name in (ROWS_MAX, BYTES_MAX):
        if not streaming and options.text(name) is not None:
            raise InvalidArgument(f"option {name} is for streams only: a batch read is one batch", field=name)


def topics_of(options: GivenOptions) -> tuple[str, ...] | TopicPattern:
    """Full names, or the pattern. Raises InvalidArgument unless exactly one of three options is set."""
    given = [name for name in (TOPIC, TOPICS, TOPICS_PATTERN) if options.text(name) is not None]
    if len(given) != 1:
        found = "none is set" if not given else f"{' and '.join(given)} are set"
        raise InvalidArgument(
            f"set one of the options {TOPIC}, {TOPICS}, {TOPICS_PATTERN}: {found}{options.hint}", field=TOPIC
        )
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
