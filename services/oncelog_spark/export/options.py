"""The options of an export. Pure: wrong options are refused before anything is read or written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import parse_topic
from oncelog_spark.export.run import ALLOW_DATA_LOSS
from oncelog_spark.locations import LOCAL, file_location
from oncelog_spark.options import ConnectionOptions, GivenOptions, Option, integer, names_of, switch
from oncelog_spark.source.options import (
    TOPIC,
    TOPICS,
    TOPICS_PATTERN,
    ClosedFromStorage,
    PassesEncrypted,
    TopicPattern,
    topics_of,
)
from oncelog_spark.source.positions import topic_of

DIRECTORY = "directory"
_ROWS_HELP = "Maximum number of messages in a file and task [1000000]."
_LOSS_HELP = "Continue where messages are gone; the manifest lists them."
#: Characters that make a path a pattern for Spark.
_PATTERN_CHARACTERS = "*?[]{}\\"
#: Besides local directories, the only supported store: a file can be created atomically, under a free name. See
#: `store`.
HDFS = "hdfs"


@dataclass(frozen=True, slots=True)
class ExportLocation:
    """The directory of an export. scheme: LOCAL or HDFS. path: absolute, for the driver; uri: for Spark."""

    scheme: str
    path: str
    uri: str


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """topics: full names, or a pattern."""

    connection: ConnectionOptions
    directory: ExportLocation
    topics: tuple[str, ...] | TopicPattern
    rows_per_file: Annotated[int, Option("rowsPerFile", integer(1, 100_000_000), "--rows-per-file", _ROWS_HELP)] = (
        1_000_000
    )
    loss_allowed: Annotated[bool, Option(ALLOW_DATA_LOSS, switch, "--allow-data-loss", _LOSS_HELP)] = False
    closed_from_storage: ClosedFromStorage = True
    passes_encrypted: PassesEncrypted = False

    def covers(self, name: str) -> bool:
        """Whether a topic, or partition, of this full name is exported."""
        if isinstance(self.topics, TopicPattern):
            whole = parse_topic(topic_of(name))
            return whole.namespace_name == self.topics.namespace and self.topics.matches(str(whole))
        return name in self.topics or topic_of(name) in self.topics


def export_options(given: Mapping[str, str], environment: Mapping[str, str]) -> ExportOptions:
    """Read all options of an export. Raises InvalidArgument, which names the option."""
    known = (TOPIC, TOPICS, TOPICS_PATTERN, DIRECTORY, *names_of(ExportOptions))
    options = GivenOptions(given, known)
    return ExportOptions(
        directory=export_location(options.text(DIRECTORY)),
        topics=topics_of(options),
        **options.values_of(ExportOptions, environment),
    )


def export_location(text: str | None) -> ExportLocation:
    """A path or URI as users write it. Raises InvalidArgument."""
    if text is None or not text.strip():
        raise InvalidArgument(f"option {DIRECTORY} is required: the directory of the export", field=DIRECTORY)
    location = file_location(DIRECTORY, text)
    if any(character in text for character in _PATTERN_CHARACTERS):
        message = (
            f"option {DIRECTORY} contains one of {' '.join(_PATTERN_CHARACTERS)}, which make it a pattern: {text:.80}"
        )
        raise InvalidArgument(message, field=DIRECTORY)
    if location.scheme in {LOCAL, HDFS}:
        return ExportLocation(location.scheme, location.path, location.text)
    raise InvalidArgument(
        f"option {DIRECTORY} must be a path, file:// or hdfs://, not {location.scheme}://: a manifest must be created "
        "atomically, and only under a free name; other stores cannot do that, or not by default",
        field=DIRECTORY,
    )
