"""Which columns may be written, and of which types. Knows no Arrow: planning processes import it, one for each batch.

Columns of the source are all accepted, so that what was read can be written. Those that say where a row came from are
its identity in mode position; they never say where it goes.
"""

import difflib
from collections.abc import Mapping

from oncelog.core.errors import InvalidArgument
from oncelog.pipeline.sink_options import Mode

_TEXT = ("string", "varchar", "char")
_NUMBER = ("bigint", "int", "smallint", "tinyint")
#: {column: Spark's types that it may have}
COLUMNS: dict[str, tuple[str, ...]] = {
    "value": ("binary", *_TEXT),
    "key": ("binary", *_TEXT),
    "event_time": ("timestamp",),
    "properties": ("map<string,string>",),
    "topic": _TEXT,
    "partition": _NUMBER,
    "topic_id": _TEXT,
    "index": _NUMBER,
    "producer_name": _TEXT,
    "sequence_id": _NUMBER,
    "ledger_id": _NUMBER,
    "entry_id": _NUMBER,
    "batch_index": _NUMBER,
    "publish_time": ("timestamp",),
}


def check_columns(columns: Mapping[str, str], mode: Mode, *, by_columns: bool = False, by_row: bool = False) -> None:
    """columns: {name: Spark's simple name of its type}. Raises InvalidArgument, which names the column."""
    for name, kind in columns.items():
        if name not in COLUMNS:
            near = difflib.get_close_matches(name.lower(), sorted(COLUMNS), n=1, cutoff=0.0)[0]
            message = f"unknown column {name}; the nearest known one is {near} ({' or '.join(COLUMNS[near])})"
            raise InvalidArgument(message, field=name)
        if kind.partition("(")[0] not in COLUMNS[name]:
            raise InvalidArgument(f"column {name} is {' or '.join(COLUMNS[name])}, not {kind}", field=name)
    if "value" not in columns:
        raise InvalidArgument("a column value (binary or string) is needed: the message itself", field="value")
    if by_row and "topic" not in columns:
        raise InvalidArgument("destination=columns needs a column topic, or the option topic", field="topic")
    by_position, by_producer = (
        {"topic", "topic_id", "index"} <= set(columns),
        {"producer_name", "sequence_id"} <= set(columns),
    )
    if by_columns and mode is Mode.POSITION and not by_producer:
        raise InvalidArgument(
            "destination=columns with mode=position needs the columns producer_name and sequence_id, which say which "
            "row is which after a replay: topic and partition say where it goes",
            field="destination",
        )
    if mode is Mode.POSITION and not (by_position or by_producer):
        raise InvalidArgument(
            "mode=position needs the columns topic, topic_id and index (with partition where topics have parts), or "
            "producer_name and sequence_id, which say which row is which after a replay; without them, mode=batch",
            field="mode",
        )
