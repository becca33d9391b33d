"""Options that reading and writing share: address and credentials of the cluster; and how options are checked.

Spark passes options as strings, under case-insensitive names. An unknown name is an error: a query must not run without
an option that its user relies on.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncelog.client.network.addresses import is_proxy_url, parse_url, speaks_tls
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.credentials import Credentials

SERVICE_URL = "serviceUrl"
TOKEN_FILE = "tokenFile"  # noqa: S105  # the name of an option
TLS_CA_FILE = "tlsCaFile"
ALLOW_PLAINTEXT_TOKEN = "allowPlaintextToken"  # noqa: S105  # the name of an option
NAMES = (SERVICE_URL, TOKEN_FILE, TLS_CA_FILE, ALLOW_PLAINTEXT_TOKEN)
#: {option: the environment variable that is used where the option is not set}
VARIABLES = {SERVICE_URL: "ONCELOG_URL", TOKEN_FILE: "ONCELOG_TOKEN_FILE", TLS_CA_FILE: "ONCELOG_TLS_CA_FILE"}
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

_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Address and credentials of the cluster. Plain values: they are sent to executors, which read the files
    themselves."""

    url: str
    token_file: str | None = None
    tls_ca_file: str | None = None
    plaintext_token_allowed: bool = False

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

    def text(self, name: str) -> str | None:
        """None: not set. Raises InvalidArgument for an empty value."""
        value = self._given.get(name)
        if value is not None and not value.strip():
            raise InvalidArgument(f"option {name} is empty", field=name)
        return value

    def integer(self, name: str, *, least: int, most: int) -> int | None:
        """None: not set. Raises InvalidArgument."""
        value = self.text(name)
        if value is None:
            return None
        digits = value.strip()
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else -1
        if not least <= number <= most:
            raise InvalidArgument(f"option {name} must be {least} to {most}, not {value!r}", field=name, limit=most)
        return number

    def switch(self, name: str, *, default: bool) -> bool:
        """Raises InvalidArgument for anything but true and false."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in _SWITCHES:
            raise InvalidArgument(f"option {name} must be true or false, not {value!r}", field=name)
        return _SWITCHES[value.strip().lower()]

    def choice(self, name: str, choices: Iterable[str], *, default: str) -> str:
        """Raises InvalidArgument for anything else."""
        value = self.text(name)
        known = tuple(choices)
        if value is None:
            return default
        if value.strip().lower() not in known:
            raise InvalidArgument(f"option {name} must be one of {', '.join(known)}, not {value!r}", field=name)
        return value.strip().lower()


def kafka_hint(option: str) -> str | None:
    """What to use instead of an option of Spark's Kafka connector; None: it is not one of them."""
    lower = option.lower()
    if lower in KAFKA_OPTIONS:
        return KAFKA_OPTIONS[lower]
    return next((hint for prefix, hint in _KAFKA_PREFIXES.items() if lower.startswith(prefix)), None)


def connection_options(options: GivenOptions, environment: Mapping[str, str]) -> ConnectionOptions:
    """Options take precedence over environment variables. Raises InvalidArgument."""

    def found(name: str) -> str | None:
        return options.text(name) or environment.get(VARIABLES[name]) or None

    connection = ConnectionOptions(
        url=found(SERVICE_URL) or DEFAULT_URL,
        token_file=found(TOKEN_FILE),
        tls_ca_file=found(TLS_CA_FILE),
        plaintext_token_allowed=options.switch(ALLOW_PLAINTEXT_TOKEN, default=False),
    )
    connection.credentials()
    return connection


def as_options(connection: ConnectionOptions) -> dict[str, str]:
    """As options of the format, for a job that reads or writes by the format's name."""
    options = {SERVICE_URL: connection.url, ALLOW_PLAINTEXT_TOKEN: str(connection.plaintext_token_allowed).lower()}
    files = {TOKEN_FILE: connection.token_file, TLS_CA_FILE: connection.tls_ca_file}
    return options | {name: value for name, value in files.items() if value is not None}
