"""The options of a compaction. Pure: wrong options are refused before anything is read or written."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import parse_topic
from oncelog_spark.export.run import ALLOW_DATA_LOSS
from oncelog_spark.options import (
    ConnectionOptions,
    GivenOptions,
    Option,
    checked,
    either,
    names_of,
    switch,
)
from oncelog_spark.sink.options import SEND_TIMEOUT_S, TOPIC, AdminUrl, Mode, SendTimeout, SinkOptions
from oncelog_spark.source.offsets import TopicState
from oncelog_spark.source.options import ClosedFromStorage
from oncelog_spark.source.positions import topic_of

TARGET = "target"
_NAME = checked(parse_topic)
_WITHOUT_KEY_HELP = "What to do with messages without a key: error or drop [error]."
_EMPTY_HELP = "What an empty value does: delete its key, or keep the message [delete]."
_LOSS_HELP = "Compact a topic with a ledger that an operator has given up."
#: The prefix of the producer names of compactions.
PREFIX = "compact"
_ID_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """source, target: full names. keyless_dropped: drop messages without a key; otherwise they are an error.
    empty_deletes: an empty value deletes its key, as in Pulsar. loss_allowed: compact a topic of which an operator has
    given up a ledger, although the last message of a key may have been in it."""

    connection: ConnectionOptions
    source: Annotated[
        str,
        Option(
            TOPIC, _NAME, "TOPIC", "The topic to compact, with all its partitions.", required="the topic to compact"
        ),
    ]
    target: Annotated[str, Option(TARGET, _NAME, "--to TOPIC", "The new topic to publish to.", required="a new topic")]
    keyless_dropped: Annotated[
        bool, Option("withoutKey", either("error", "drop", true="drop"), "--without-key", _WITHOUT_KEY_HELP)
    ] = False
    empty_deletes: Annotated[
        bool, Option("emptyValue", either("delete", "keep", true="delete"), "--empty-value", _EMPTY_HELP)
    ] = True
    loss_allowed: Annotated[bool, Option(ALLOW_DATA_LOSS, switch, "--allow-data-loss", _LOSS_HELP)] = False
    closed_from_storage: ClosedFromStorage = True
    send_timeout_s: SendTimeout = SEND_TIMEOUT_S
    admin_url: AdminUrl = None

    def job_id(self, states: Iterable[TopicState]) -> str:
        """Identifies a repeated job: the same topic, by its ids, and the same options. The end of the topic is not part
        of it: a job that is repeated before it published anything uses the messages that are stored by then."""
        identity = {
            "source": self.source,
            "parts": sorted((state.topic, str(state.topic_id)) for state in states),
            "keyless_dropped": self.keyless_dropped,
            "empty_deletes": self.empty_deletes,
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:_ID_CHARACTERS]

    def sink(self, job_id: str) -> SinkOptions:
        """As options of the sink."""
        return SinkOptions(
            self.connection,
            self.target,
            PREFIX,
            Mode.BATCH,
            job_id=job_id,
            admin_url=self.admin_url,
            send_timeout_s=self.send_timeout_s,
        )


def compact_options(given: Mapping[str, str], environment: Mapping[str, str]) -> CompactOptions:
    """Parse all options of a compaction. Raises InvalidArgument, which names the option."""
    options = GivenOptions(given, names_of(CompactOptions))
    found = CompactOptions(**options.values_of(CompactOptions, environment))
    source, target = found.source, found.target
    if target in {source, topic_of(source)} or topic_of(target) == source:
        raise InvalidArgument(
            f"option {TARGET}: {target} is the source of the compaction: name a new topic", field=TARGET
        )
    return found
