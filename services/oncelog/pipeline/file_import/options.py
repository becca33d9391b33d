"""The options of an import. Pure: wrong options are refused before anything is read or written."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import check_producer_name, parse_topic
from oncelog.pipeline import options as connection
from oncelog.pipeline.locations import LOCAL, file_location
from oncelog.pipeline.options import ConnectionOptions, GivenOptions, connection_options
from oncelog.pipeline.sink.options import (
    PREFIX_CHARACTERS_MAX,
    SEND_TIMEOUT,
    SEND_TIMEOUT_S,
    SEND_TIMEOUT_S_MAX,
    TOPIC,
    Mode,
    SinkOptions,
)

SOURCE = "source"
NAME = "name"
FORMAT = "format"
GLOB = "glob"
VALUE = "value"
KEY = "key"
EVENT_TIME = "eventTime"
PROPERTIES = "properties"
DELIMITER = "delimiter"
COLUMNS = "columns"
CHECKSUM = "checksum"
NAMES = (
    *connection.NAMES,
    TOPIC,
    SEND_TIMEOUT,
    SOURCE,
    NAME,
    FORMAT,
    GLOB,
    VALUE,
    KEY,
    EVENT_TIME,
    PROPERTIES,
    DELIMITER,
    COLUMNS,
    CHECKSUM,
)
_TAB = {"\\t": "\t", "tab": "\t"}


class FileFormat(StrEnum):
    """The format of the files."""

    PARQUET = "parquet"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Which columns make a message. value None: all columns, as a JSON object. names: the columns of CSV files without
    a header; (): the first row is the header. delimiter: of CSV."""

    format: FileFormat
    value: str | None = None
    key: str | None = None
    event_time: str | None = None
    properties: tuple[str, ...] = ()
    delimiter: str = ","
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Stored with each file, because all rows of a file must be made in the same way."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, sort_keys=True)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Plain values: they are sent to executors. source: a path or URI. glob: of paths below it; None: by the format."""

    connection: ConnectionOptions
    topic: str
    name: str
    source: str
    mapped: ColumnMapping
    glob: str
    checksum: bool = False
    send_timeout_s: int = SEND_TIMEOUT_S

    @property
    def sink(self) -> SinkOptions:
        """As options of the sink."""
        return SinkOptions(self.connection, self.topic, self.name, Mode.POSITION, send_timeout_s=self.send_timeout_s)


def import_options(given: Mapping[str, str], environment: Mapping[str, str]) -> ImportOptions:
    """Parse all options of an import. Raises InvalidArgument, which names the option."""
    options = GivenOptions(given, NAMES)
    mapped = _mapped(options)
    return ImportOptions(
        connection=connection_options(options, environment),
        topic=_named(TOPIC, _needed(options, TOPIC, "the topic to write to"), parse_topic),
        name=_name(_needed(options, NAME, "a stable name of this import, the prefix of its producers' names")),
        source=source_uri(_needed(options, SOURCE, "a directory or file")),
        mapped=mapped,
        glob=options.text(GLOB) or f"*.{mapped.format}",
        checksum=options.switch(CHECKSUM, default=False),
        send_timeout_s=options.integer(SEND_TIMEOUT, least=1, most=SEND_TIMEOUT_S_MAX) or SEND_TIMEOUT_S,
    )


def source_uri(text: str) -> str:
    """A path made absolute; a URI as it is. Raises InvalidArgument."""
    location = file_location(SOURCE, text)
    if location.scheme == LOCAL:
        return location.path
    if location.path == "/":
        raise InvalidArgument(f"option {SOURCE}: {text:.80} is not a directory or file", field=SOURCE)
    return location.text


def _mapped(options: GivenOptions) -> ColumnMapping:
    kind = FileFormat(options.choice(FORMAT, list(FileFormat), default=FileFormat.PARQUET))
    for name in (DELIMITER, COLUMNS):
        if kind is not FileFormat.CSV and options.text(name) is not None:
            raise InvalidArgument(
                f"option {name} is for {FORMAT}={FileFormat.CSV} only: Parquet files contain it", field=name
            )
    return ColumnMapping(
        kind,
        value=options.text(VALUE),
        key=options.text(KEY),
        event_time=options.text(EVENT_TIME),
        properties=_list(options, PROPERTIES),
        delimiter=_delimiter(options),
        names=_list(options, COLUMNS),
    )


def _list(options: GivenOptions, name: str) -> tuple[str, ...]:
    given = tuple(each.strip() for each in (options.text(name) or "").split(",") if each.strip())
    if len(set(given)) != len(given):
        raise InvalidArgument(f"option {name} names a column twice: {', '.join(given)}", field=name)
    return given


def _delimiter(options: GivenOptions) -> str:
    given = options.text(DELIMITER) or ","
    found = _TAB.get(given, given)
    if len(found) != 1 or not found.isascii() or found in '"\r\n':
        raise InvalidArgument(
            f"option {DELIMITER} must be one character, or \\t, not {given!r}", field=DELIMITER, limit=1
        )
    return found


def _needed(options: GivenOptions, name: str, what: str) -> str:
    value = options.text(name)
    if value is None:
        raise InvalidArgument(f"option {name} is required: {what}", field=name)
    return value.strip()


def _name(text: str) -> str:
    if len(text) > PREFIX_CHARACTERS_MAX:
        message = f"option {NAME} has {len(text)} characters, more than the limit of {PREFIX_CHARACTERS_MAX}"
        raise InvalidArgument(message, field=NAME, limit=PREFIX_CHARACTERS_MAX)
    return _named(NAME, text, check_producer_name)


def _named(option: str, text: str, check: Callable[[str], object]) -> str:
    try:
        return str(check(text))
    except OncelogError as error:
        raise InvalidArgument(f"option {option}: {error.message}", field=option) from error
