"""Options that reading and writing share: where the cluster is and who asks; and how options are checked.

Spark gives options as texts, under names whose case does not count. An unknown name is an error, for an option that is
silently ignored promises what does not hold.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncelog.client.addresses import is_proxy_url, parse_url, speaks_tls
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.credentials import Credentials

SERVICE_URL = "serviceUrl"
TOKEN_FILE = "tokenFile"  # noqa: S105  # the name of an option
TLS_CA_FILE = "tlsCaFile"
ALLOW_PLAINTEXT_TOKEN = "allowPlaintextToken"  # noqa: S105  # the name of an option
NAMES = (SERVICE_URL, TOKEN_FILE, TLS_CA_FILE, ALLOW_PLAINTEXT_TOKEN)
#: {option: the variable that it is taken from where it is not given}
VARIABLES = {SERVICE_URL: "ONCELOG_URL", TOKEN_FILE: "ONCELOG_TOKEN_FILE", TLS_CA_FILE: "ONCELOG_TLS_CA_FILE"}
DEFAULT_URL = "oncelog://127.0.0.1:6650"

#: {option of Spark's Kafka connector, in lower case: what there is here instead}
KAFKA_OPTIONS = {
    "subscribe": "use topic, or topics with commas",
    "subscribepattern": "use topicsPattern",
    "assign": "use topics with the names of parts, as flights-partition-0",
    "kafka.bootstrap.servers": "use serviceUrl, as oncelog://host:6650",
    "startingoffsets": "use startingPosition: earliest, latest, a time in ms, or a number for each topic",
    "startingoffsetsbytimestamp": "use startingPosition with a time in ms since 1970",
    "startingtimestamp": "use startingPosition with a time in ms since 1970",
    "endingoffsets": "use endingPosition",
    "endingoffsetsbytimestamp": "use endingPosition with a time in ms since 1970",
    "endingtimestamp": "use endingPosition with a time in ms since 1970",
    "maxoffsetspertrigger": "use maxRowsPerBatch, or maxBytesPerBatch",
    "maxbytespertrigger": "use maxBytesPerBatch",
    "minoffsetspertrigger": "use the trigger's interval: a batch has what is there",
    "maxtriggerdelay": "use the trigger's interval",
    "minpartitions": "use rowsPerPartition: a topic part is cut into tasks of at most so many rows",
    "maxrecordsperpartition": "use rowsPerPartition",
    "includeheaders": "leave it out: the column properties is always there",
    "groupidprefix": "leave it out: the checkpoint alone says how far a query has read",
}
_KAFKA_PREFIXES = {
    "kafka.ssl.": "use oncelog+tls:// in serviceUrl, and tlsCaFile",
    "kafka.sasl.": "use tokenFile",
    "kafka.security.": "use tokenFile, tlsCaFile and oncelog+tls:// in serviceUrl",
    "kafka.group.": "leave it out: the checkpoint alone says how far a query has read",
    "kafka.": "leave it out: settings of Kafka's clients mean nothing here",
}

_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where the cluster is and who asks. Plain values: it travels to executors, which read the files themselves."""

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
        """Raises InvalidArgument: a file that cannot be read, a token that would go out in plain text, a URL that leads
        through gateways."""
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
                f"{self.url[:100]}: Spark asks topic owners and storage nodes itself, which needs their addresses: "
                "run it where their addresses are reached, with oncelog:// or oncelog+tls://",
                field=SERVICE_URL,
            )
        return found


class GivenOptions:
    """Options as Spark gives them, by names whose case does not count. Raises InvalidArgument on an unknown one."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in known}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in names:
                if instead := kafka_hint(name):
                    raise InvalidArgument(f"option {name} is of Spark's Kafka connector; {instead}", field=name)
                near = difflib.get_close_matches(name.lower(), sorted(names), n=1, cutoff=0.0)[0]
                raise InvalidArgument(f"unknown option {name}; the nearest known one is {names[near]}", field=name)
            self._given[names[name.lower()]] = value

    def text(self, name: str) -> str | None:
        """None: not given. Raises InvalidArgument on an empty one."""
        value = self._given.get(name)
        if value is not None and not value.strip():
            raise InvalidArgument(f"option {name} is empty", field=name)
        return value

    def integer(self, name: str, *, least: int, most: int) -> int | None:
        """None: not given. Raises InvalidArgument."""
        value = self.text(name)
        if value is None:
            return None
        digits = value.strip()
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else -1
        if not least <= number <= most:
            raise InvalidArgument(f"option {name} is {least} to {most}, not {value!r}", field=name, limit=most)
        return number

    def switch(self, name: str, *, default: bool) -> bool:
        """Raises InvalidArgument on anything but true and false."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in _SWITCHES:
            raise InvalidArgument(f"option {name} is true or false, not {value!r}", field=name)
        return _SWITCHES[value.strip().lower()]

    def choice(self, name: str, choices: Iterable[str], *, default: str) -> str:
        """Raises InvalidArgument on anything else."""
        value = self.text(name)
        known = tuple(choices)
        if value is None:
            return default
        if value.strip().lower() not in known:
            raise InvalidArgument(f"option {name} is one of {', '.join(known)}, not {value!r}", field=name)
        return value.strip().lower()


def kafka_hint(option: str) -> str | None:
    """What to use instead of an option of Spark's Kafka connector; None: it is none."""
    lower = option.lower()
    if lower in KAFKA_OPTIONS:
        return KAFKA_OPTIONS[lower]
    return next((hint for prefix, hint in _KAFKA_PREFIXES.items() if lower.startswith(prefix)), None)


def connection_options(options: GivenOptions, environment: Mapping[str, str]) -> ConnectionOptions:
    """Options go before variables. Raises InvalidArgument."""

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
    """The options that say this: for a job that reads or writes by the format's name."""
    told = {SERVICE_URL: connection.url, ALLOW_PLAINTEXT_TOKEN: str(connection.plaintext_token_allowed).lower()}
    files = {TOKEN_FILE: connection.token_file, TLS_CA_FILE: connection.tls_ca_file}
    return told | {name: value for name, value in files.items() if value is not None}
