"""Options that reading and writing share: address and credentials of the cluster; and how options are checked.

Spark passes options as strings, under case-insensitive names. An unknown name is an error: a query must not run without
an option that its user relies on.

Each option is written once, as the annotation of the field that holds its value:

    rows_per_file: Annotated[int, Option("rowsPerFile", integer(1, 10**8), "--rows-per-file", "…")] = 10**6

`names_of` lists the names of such a dataclass, `GivenOptions.values_of` parses its values, and `cli.pipeline.options`
makes the options of a command from it.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast, get_type_hints

from oncelog.client.network.addresses import is_proxy_url, parse_url, speaks_tls
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.runtime.credentials import Credentials

SERVICE_URL = "serviceUrl"

DEFAULT_URL = "oncelog://127.0.0.1:6650"

#: {option of Spark's Kafka connector, in lower case: what to use instead}
KAFKA_OPTIONS = {
    "subscribe": "use topic, or topics, separated by commas",
    "subscribepattern": "use topicsPattern",
    "assign": "use topics with the names of partitions, as flights-partition-0",
    "kafka.bootstrap.servers": "use serviceUrl, as oncelog://host:6650",
    "startingoffsets": "use startingPosition: earliest, latest, a time in ms, or a number for each topic",
    "startingoffsetsbytimestamp": "use startingPosition with a time in ms since 1970",
    "startingtimestamp": "use startingPosition with a time in ms since 1970",
    "endingoffsets": "use endingPosition",
    "endingoffsetsbytimestamp": "use endingPosition with a time in ms since 1970",
    "endingtimestamp": "use endingPosition with a time in ms since 1970",
    "maxoffsetspertrigger": "use maxRowsPerBatch, or maxBytesPerBatch",
    "maxbytespertrigger": "use maxBytesPerBatch",
    "minoffsetspertrigger": "use the trigger's interval: a batch has all messages that are stored by then",
    "maxtriggerdelay": "use the trigger's interval",
    "minpartitions": "use rowsPerPartition: a partition is split into tasks of at most this many rows",
    "maxrecordsperpartition": "use rowsPerPartition",
    "includeheaders": "leave it out: the column properties is always present",
    "groupidprefix": "leave it out: only the checkpoint stores how far a query has read",
}
_KAFKA_PREFIXES = {
    "kafka.ssl.": "use oncelog+tls:// in serviceUrl, and tlsCaFile",
    "kafka.sasl.": "use tokenFile",
    "kafka.security.": "use tokenFile, tlsCaFile and oncelog+tls:// in serviceUrl",
    "kafka.group.": "leave it out: only the checkpoint stores how far a query has read",
    "kafka.": "leave it out: settings of Kafka clients have no effect",
}


class Given(NamedTuple):
    """The text of an option. label: what to call it in an error. name: of the option or environment variable."""

    text: str
    label: str
    name: str


#: Raises OncelogError.
Parse = Callable[[Given], Any]


def plain(given: Given) -> str:
    """The text as it is."""
    return given.text


def integer(least: int, most: int) -> Parse:
    """A number from least to most, both inclusive."""

    def parse(given: Given) -> int:
        digits = given.text.strip()
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else -1
        if not least <= number <= most:
            message = f"{given.label} must be {least} to {most}, not {given.text!r}"
            raise InvalidArgument(message, field=given.name, limit=most)
        return number

    return parse


def switch(given: Given) -> bool:
    """true or false."""
    value = given.text.strip().lower()
    if value not in {"true", "false"}:
        raise InvalidArgument(f"{given.label} must be true or false, not {given.text!r}", field=given.name)
    return value == "true"


def choice(*known: str) -> Parse:
    """One of these; returns the element of `known`."""

    def parse(given: Given) -> str:
        value = given.text.strip().lower()
        if value not in known:
            message = f"{given.label} must be one of {', '.join(known)}, not {given.text!r}"
            raise InvalidArgument(message, field=given.name)
        return known[known.index(value)]

    return parse


def either(*known: str, true: str) -> Parse:
    """One of these; whether it is `true`."""
    parse = choice(*known)
    return lambda given: parse(given) == true


def checked(check: Callable[[str], object], characters_max: int | None = None) -> Parse:
    """What `check` returns, as a string. An error names the option."""

    def parse(given: Given) -> str:
        text = given.text.strip()
        if characters_max is not None and len(text) > characters_max:
            message = f"{given.label} has {len(text)} characters, more than the limit of {characters_max}"
            raise InvalidArgument(message, field=given.name, limit=characters_max)
        try:
            return str(check(text))
        except OncelogError as error:
            raise InvalidArgument(f"{given.label}: {error.message}", field=given.name) from error

    return parse


@dataclass(frozen=True, slots=True)
class Option:
    """name: of the option. parse: of its text. flag: of the command, with the name of its value: `--key COLUMN`, or
    `TOPIC` for an argument; None: the command does not have the option. help: of the command.

    required: what it is, where it must be set. variable: the environment variable that is used where it is not set;
    variable_shown: the command's help names it. repeated: the command joins several values by commas.
    """

    name: str
    parse: Parse = plain
    flag: str | None = None
    help: str = ""
    required: str | None = None
    variable: str | None = None
    variable_shown: bool = False
    repeated: bool = False


@cache
def fields_of(options: type) -> Mapping[str, Option | type]:
    """{field: its option, or the dataclass of further options}, without fields that are neither."""
    found: dict[str, Option | type] = {}
    for field, annotation in get_type_hints(options, include_extras=True).items():
        if is_dataclass(annotation) and options_in(cast("type", annotation)):
            found[field] = cast("type", annotation)
        for each in getattr(annotation, "__metadata__", ()):
            if isinstance(each, Option):
                found[field] = each
    return found


def options_in(options: type) -> list[Option]:
    """The options of a dataclass, in order."""
    return [
        option
        for each in fields_of(options).values()
        for option in ([each] if isinstance(each, Option) else options_in(each))
    ]


def names_of(options: type) -> tuple[str, ...]:
    """The names of the options of a dataclass, in order."""
    return tuple(option.name for option in options_in(options))


#: Spark drops the options of a table, so the format never sees them.
_NO_OPTIONS = (
    ". No option was given: Spark keeps no options of a table; use `create temporary view v using oncelog "
    "options(…)`, or `select … from t with (topic = '…', …)`"
)


class GivenOptions:
    """Options as Spark passes them, by case-insensitive names. Raises InvalidArgument for an unknown name."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                if instead := kafka_hint(name):
                    raise InvalidArgument(f"option {name} belongs to Spark's Kafka connector; {instead}", field=name)
                near = difflib.get_close_matches(name.lower(), sorted(names), n=1, cutoff=0.0)[0]
                raise InvalidArgument(f"unknown option {name}; the most similar option is {names[near]}", field=name)
            self._given[names[name.lower()]] = value

    @property
    def hint(self) -> str:
        """For an error about a missing option: why there may be none at all."""
        return "" if self._given else _NO_OPTIONS

    def text(self, name: str) -> str | None:
        """None: not set. Raises InvalidArgument for an empty value."""
        value = self._given.get(name)
        if value is not None and not value.strip():
            raise InvalidArgument(f"option {name} is empty", field=name)
        return value

    def value(self, option: Option, environment: Mapping[str, str]) -> Any:
        """Parsed; None: not set. Options take precedence over environment variables. Raises InvalidArgument."""
        text = self.text(option.name)
        if text is not None:
            return option.parse(Given(text, f"option {option.name}", option.name))
        if option.variable is not None and (text := environment.get(option.variable)):
            return option.parse(Given(text, f"the variable {option.variable}", option.variable))
        if option.required is not None:
            raise InvalidArgument(f"option {option.name} is required: {option.required}{self.hint}", field=option.name)
        return None

    def values_of(self, options: type, environment: Mapping[str, str]) -> dict[str, Any]:
        """{field: value} of the options of a dataclass that are set. Raises InvalidArgument."""
        found: dict[str, Any] = {}
        for field, each in fields_of(options).items():
            if isinstance(each, Option):
                value = self.value(each, environment)
                found |= {} if value is None else {field: value}
            elif each is ConnectionOptions:
                found[field] = connection_options(self, environment)
            else:
                found[field] = each(**self.values_of(each, environment))
        return found


def kafka_hint(option: str) -> str | None:
    """What to use instead of an option of Spark's Kafka connector; None: it is not one of them."""
    lower = option.lower()
    if lower in KAFKA_OPTIONS:
        return KAFKA_OPTIONS[lower]
    return next((hint for prefix, hint in _KAFKA_PREFIXES.items() if lower.startswith(prefix)), None)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Address and credentials of the cluster. Plain values: they are sent to executors, which read the files
    themselves."""

    url: Annotated[str, Option(SERVICE_URL, variable="ONCELOG_URL")] = DEFAULT_URL
    token_file: Annotated[str | None, Option("tokenFile", variable="ONCELOG_TOKEN_FILE")] = None
    tls_ca_file: Annotated[str | None, Option("tlsCaFile", variable="ONCELOG_TLS_CA_FILE")] = None
    plaintext_token_allowed: Annotated[bool, Option("allowPlaintextToken", switch)] = False

    @property
    def token(self) -> Path | None:
        """As the SDK takes it."""
        return None if self.token_file is None else Path(self.token_file)

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of the metadata services."""
        return parse_url(self.url)

    def credentials(self) -> Credentials:
        """Raises InvalidArgument: a file that cannot be read, a token that would be sent unencrypted, a URL of
        gateways."""
        found = Credentials.of(
            tls=speaks_tls(self.url),
            token=self.token,
            tls_ca_file=self.tls_ca_file,
            plaintext_token_allowed=self.plaintext_token_allowed,
        )
        for address in self.addresses:
            found.check_address(address)
        if is_proxy_url(self.url):
            raise InvalidArgument(
                f"{self.url[:100]}: Spark connects to topic owners and storage nodes directly. Run it where their "
                "addresses can be reached, with oncelog:// or oncelog+tls://",
                field=SERVICE_URL,
            )
        return found


NAMES = names_of(ConnectionOptions)


def connection_options(options: GivenOptions, environment: Mapping[str, str]) -> ConnectionOptions:
    """Options take precedence over environment variables. Raises InvalidArgument."""
    connection = ConnectionOptions(**options.values_of(ConnectionOptions, environment))
    connection.credentials()
    return connection


def as_options(connection: ConnectionOptions) -> dict[str, str]:
    """As options of the format, for a job that reads or writes by the format's name."""
    values = {
        option.name: getattr(connection, field)
        for field, option in zip(connection.__slots__, options_in(ConnectionOptions), strict=True)
    }
    return {name: as_text(value) for name, value in values.items() if value is not None}


def as_text(value: str | int | Path | bool) -> str:
    """The text of an option. Paths are made absolute, because executors may have another working directory."""
    if isinstance(value, Path):
        return str(value.absolute())
    return str(value).lower() if isinstance(value, bool) else str(value)
