"""The digest of a batch's rows: equal for the same rows in any split, different for other rows."""

import random
from typing import Any

import pyarrow as pa
import pytest

from oncelog_spark.sink.row_digest import rows_digest, sum_of
from oncelog_spark.sink.rows import Rows, rows_of

ROWS = [{"value": b"v%d" % n, "key": b"k%d" % (n % 7) if n % 3 else None} for n in range(500)]
SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)
ONE: dict[str, Any] = {"value": b"v", "key": b"k", "event_time": 1_000_000, "properties": {"a": "1", "b": "2"}}


def rows(listed: list[dict[str, Any]]) -> Rows:
    return rows_of(pa.RecordBatch.from_pylist(listed, SCHEMA))


def test_order_and_partitions_do_not_matter() -> None:
    """A replay may be planned differently."""
    whole = rows_digest(rows(ROWS))
    shuffled = random.Random(7).sample(ROWS, len(ROWS))
    for parts in (1, 2, 5, 499):
        assert sum_of(rows_digest(rows(shuffled[start::parts])) for start in range(parts)) == whole


def test_no_rows_have_digest_zero() -> None:
    """Empty partitions change nothing."""
    assert rows_digest(rows([])) == 0


@pytest.mark.parametrize(
    "other",
    [
        {"value": b"w"},
        {"value": b"v\0"},
        {"key": None},
        {"key": b""},
        {"key": b"v", "value": b"k"},
        {"event_time": 1_001_000},
        {"event_time": None},
        {"properties": None},
        {"properties": {"a": "1"}},
        {"properties": {"a": "2", "b": "1"}},
    ],
)
def test_each_field_counts(other: dict[str, Any]) -> None:
    """A changed row is another row."""
    assert rows_digest(rows([ONE | other])) != rows_digest(rows([ONE]))


def test_a_doubled_row_is_not_a_missing_row() -> None:
    """Two of one row and none of another: the sum differs, where an exclusive or would not."""
    first, second = ({"value": b"a"}, {"value": b"b"})
    assert len({rows_digest(rows(each)) for each in ([first, first], [second, second], [first, second], [])}) == 4


def test_an_absent_field_is_no_difference() -> None:
    """The order of properties, and a column that is absent instead of empty."""
    assert rows_digest(rows([ONE])) == rows_digest(rows([ONE | {"properties": {"b": "2", "a": "1"}}]))
    only_values = rows_of(pa.RecordBatch.from_pydict({"value": [b"a"]}))
    assert rows_digest(only_values) == rows_digest(rows([{"value": b"a"}, {"value": b"b", "key": b"k"}]).slice(0, 1))
