"""The options of an import. Pure: wrong options are refused before anything is read or written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import parse_topic
from oncelog_spark.locations import LOCAL, file_location
from oncelog_spark.options import (
    ConnectionOptions,
    Given,
    GivenOptions,
    Option,
    checked,
    choice,
    names_of,
    plain,
    switch,
)
from oncelog_spark.sink.options import NAME, SEND_TIMEOUT_S, TOPIC, Mode, SendTimeout, SinkOptions

DELIMITER = "delimiter"
COLUMNS = "columns"
_SOURCE_HELP = "A directory, or one file; all executors must be able to read it."
_NAME_HELP = "Stable name of this import. Use the same name on every run."
_NAME_REQUIRED = "a stable name of this import, the prefix of its producers' names"
_PROPERTY_HELP = "Column to use as a property of the same name; may be repeated."
_CHECKSUM_HELP = "Read known files again, to find changed content with the same size and time."
_TAB = {"\\t": "\t", "tab": "\t"}


class FileFormat(StrEnum):
    """The format of the files."""

    PARQUET = "parquet"
    CSV = "csv"


def _source(given: Given) -> str:
    """A path made absolute; a URI as it is."""
    location = file_location(given.name, given.text.strip())
    if location.scheme == LOCAL:
        return location.path
    if location.path == "/":
        raise InvalidArgument(f"{given.label}: {given.text:.80} is not a directory or file", field=given.name)
    return location.text


def _list(given: Given) -> tuple[str, ...]:
    names = tuple(each.strip() for each in given.text.split(",") if each.strip())
    if len(set(names)) != len(names):
        raise InvalidArgument(f"{given.label} names a column twice: {', '.join(names)}", field=given.name)
    return names


def _delimiter(given: Given) -> str:
    found = _TAB.get(given.text, given.text)
    if len(found) != 1 or not found.isascii() or found in '"\r\n':
        message = f"{given.label} must be one character, or \\t, not {given.text!r}"
        raise InvalidArgument(message, field=given.name, limit=1)
    return found


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Which columns make a message. value None: all columns, as a JSON object. names: the columns of CSV files without
    a header; (): the first row is the header. delimiter: of CSV."""

    format: Annotated[
        FileFormat, Option("format", choice(*FileFormat), "--format", "Format of the files: parquet or csv [parquet].")
    ] = FileFormat.PARQUET
    value: Annotated[
        str | None, Option("value", plain, "--value COLUMN", "Column of the value [all columns, as JSON].")
    ] = None
    key: Annotated[str | None, Option("key", plain, "--key COLUMN", "Column of the key [none].")] = None
    event_time: Annotated[
        str | None, Option("eventTime", plain, "--event-time COLUMN", "Column of the event time [none].")
    ] = None
    properties: Annotated[
        tuple[str, ...], Option("properties", _list, "--property COLUMN", _PROPERTY_HELP, repeated=True)
    ] = ()
    delimiter: Annotated[
        str, Option(DELIMITER, _delimiter, "--delimiter", "Delimiter of CSV files: one character, or \\t [,].")
    ] = ","
    names: Annotated[
        tuple[str, ...],
        Option(COLUMNS, _list, "--columns NAME,NAME…", "Names of the columns of CSV files without a header."),
    ] = ()

    @property
    def text(self) -> str:
        """Stored with each file, because all rows of a file must be made in the same way."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, sort_keys=True)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Plain values: they are sent to executors. source: a path or URI. glob: of paths below it."""

    connection: ConnectionOptions
    source: Annotated[str, Option("source", _source, "SOURCE", _SOURCE_HELP, required="a directory or file")]
    topic: Annotated[
        str,
        Option(TOPIC, checked(parse_topic), "--topic", "The topic to publish to.", required="the topic to write to"),
    ]
    name: Annotated[str, Option("name", NAME, "--name", _NAME_HELP, required=_NAME_REQUIRED)]
    mapped: ColumnMapping = ColumnMapping()
    glob: Annotated[
        str, Option("glob", plain, "--glob", "Pattern of paths below SOURCE; * also matches / [*.FORMAT].")
    ] = "*.parquet"
    checksum: Annotated[bool, Option("checksum", switch, "--checksum", _CHECKSUM_HELP)] = False
    send_timeout_s: SendTimeout = SEND_TIMEOUT_S

    @property
    def sink(self) -> SinkOptions:
        """As options of the sink."""
        return SinkOptions(self.connection, self.topic, self.name, Mode.POSITION, send_timeout_s=self.send_timeout_s)


def import_options(given: Mapping[str, str], environment: Mapping[str, str]) -> ImportOptions:
    """Parse all options of an import. Raises InvalidArgument, which names the option."""
    options = GivenOptions(given, names_of(ImportOptions))
    values = options.values_of(ImportOptions, environment)
    kind = values["mapped"].format
    for name in (DELIMITER, COLUMNS):
        if kind is not FileFormat.CSV and options.text(name) is not None:
            raise InvalidArgument(
                f"option {name} is for format={FileFormat.CSV} only: Parquet files contain it", field=name
            )
    return ImportOptions(**{"glob": f"*.{kind}"} | values)
