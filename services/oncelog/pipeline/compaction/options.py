"""The options of a compaction. Pure: wrong options are refused before anything is read or written."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import parse_topic
from oncelog.pipeline import options as connection
from oncelog.pipeline.export.run import ALLOW_DATA_LOSS
from oncelog.pipeline.options import ConnectionOptions, GivenOptions, connection_options
from oncelog.pipeline.sink.options import (
    ADMIN_URL,
    ADMIN_URL_VARIABLE,
    SEND_TIMEOUT,
    SEND_TIMEOUT_S,
    SEND_TIMEOUT_S_MAX,
    TOPIC,
    Mode,
    SinkOptions,
)
from oncelog.pipeline.source.offsets import TopicState
from oncelog.pipeline.source.options import CLOSED_LEDGERS, OWNER, STORAGE, source_options
from oncelog.pipeline.source.positions import topic_of

TARGET = "target"
WITHOUT_KEY = "withoutKey"
EMPTY_VALUE = "emptyValue"
ERROR, DROP, DELETE, KEEP = "error", "drop", "delete", "keep"
NAMES = (
    *connection.NAMES, TOPIC, TARGET, WITHOUT_KEY, EMPTY_VALUE, ALLOW_DATA_LOSS, CLOSED_LEDGERS, ADMIN_URL,
    SEND_TIMEOUT,
)  # fmt: skip
#: The prefix of the producer names of compactions.
PREFIX = "compact"
_ID_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """source, target: full names. keyless_dropped: drop messages without a key; otherwise they are an error.
    empty_deletes: an empty value deletes its key, as in Pulsar. loss_allowed: compact a topic of which an operator has
    given up a ledger, although the last message of a key may have been in it."""

    connection: ConnectionOptions
    source: str
    target: str
    keyless_dropped: bool = False
    empty_deletes: bool = True
    closed_ledgers: str = STORAGE
    admin_url: str | None = None
    send_timeout_s: int = SEND_TIMEOUT_S
    loss_allowed: bool = False

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
    options = GivenOptions(given, NAMES)
    source, target = _topic(options, TOPIC, "the topic to compact"), _topic(options, TARGET, "a new topic")
    if target in {source, topic_of(source)} or topic_of(target) == source:
        raise InvalidArgument(
            f"option {TARGET}: {target} is the source of the compaction: name a new topic", field=TARGET
        )
    reading = {name: value for name in (TOPIC, CLOSED_LEDGERS) if (value := options.text(name)) is not None}
    closed = source_options(reading, environment, streaming=False).closed_from_storage
    return CompactOptions(
        connection=connection_options(options, environment),
        source=source,
        target=target,
        keyless_dropped=options.choice(WITHOUT_KEY, (ERROR, DROP), default=ERROR) == DROP,
        empty_deletes=options.choice(EMPTY_VALUE, (DELETE, KEEP), default=DELETE) == DELETE,
        closed_ledgers=STORAGE if closed else OWNER,
        admin_url=options.text(ADMIN_URL) or environment.get(ADMIN_URL_VARIABLE) or None,
        send_timeout_s=options.integer(SEND_TIMEOUT, least=1, most=SEND_TIMEOUT_S_MAX) or SEND_TIMEOUT_S,
        loss_allowed=options.switch(ALLOW_DATA_LOSS, default=False),
    )


def _topic(options: GivenOptions, name: str, what: str) -> str:
    text = options.text(name)
    if text is None:
        raise InvalidArgument(f"option {name} is required: {what}", field=name)
    try:
        return str(parse_topic(text.strip()))
    except OncelogError as error:
        raise InvalidArgument(f"option {name}: {error.message}", field=name) from error
