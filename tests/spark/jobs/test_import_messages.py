"""Rows of files as messages: the mapping of columns, and errors that name the file and the row."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oncelog.core.errors import InvalidArgument, MessageTooLarge
from oncelog_spark.file_import.files import batches_of, checksum_of, list_files, open_source
from oncelog_spark.file_import.messages import messages_of
from oncelog_spark.file_import.options import ColumnMapping, FileFormat
from oncelog_spark.sink.rows import Rows

TIME = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TIME_MS = 1_772_366_400_250
CSV = ColumnMapping(FileFormat.CSV)
PAIRS = pa.map_(pa.binary(), pa.binary())


def rows_of(directory: Path, name: str, mapped: ColumnMapping) -> list[Rows]:
    source = open_source(str(directory))
    return list(messages_of(name, batches_of(source, name, mapped), mapped))


def of_csv(directory: Path, text: str, **mapped: Any) -> list[Rows]:
    (directory / "f.csv").write_text(text)
    return rows_of(directory, "f.csv", ColumnMapping(FileFormat.CSV, **mapped))


def of_bytes(directory: Path, data: bytes) -> list[Rows]:
    (directory / "f.csv").write_bytes(data)
    return rows_of(directory, "f.csv", CSV)


def of_parquet(directory: Path, columns: dict[str, Any], **mapped: Any) -> list[Rows]:
    parquet.write_table(pa.table(columns), directory / "f.parquet")
    return rows_of(directory, "f.parquet", ColumnMapping(FileFormat.PARQUET, **mapped))


def test_all_columns_become_a_json_object_in_order(tmp_path: Path) -> None:
    """A value without a form in JSON becomes a string; a null stays null."""
    columns = {
        "n": [1, None],
        "x": [1.5, float("nan")],
        "t": pa.array([TIME, None], pa.timestamp("ns", "UTC")),
        "d": [date(2026, 3, 1), None],
        "m": [Decimal("1.10"), None],
        "b": [b"\xff", b""],
        "l": [[{"a": "é"}], []],
    }
    (rows,) = of_parquet(tmp_path, columns)
    assert [json.loads(bytes(value)) for value in rows.values] == [
        {"n": 1, "x": 1.5, "t": TIME.isoformat(), "d": "2026-03-01", "m": "1.10", "b": "/w==", "l": [{"a": "é"}]},
        {"n": None, "x": "nan", "t": None, "d": None, "m": None, "b": "", "l": []},
    ]
    assert list(json.loads(bytes(rows.values[0]))) == list(columns)


def test_columns_become_value_key_event_time_and_properties(tmp_path: Path) -> None:
    """Numbers and times as strings; an empty CSV field is no key, no time and no property."""
    columns = {
        "v": [10, 20],
        "k": ["a", None],
        "t": pa.array([TIME, None]),
        "p": ["x", None],
        "more": pa.array([[("q", "y")], []], pa.map_(pa.string(), pa.string())),
    }
    (rows,) = of_parquet(tmp_path, columns, value="v", key="k", event_time="t", properties=("p", "more"))
    assert (list(rows.values), rows.keys, rows.event_times_ms) == ([b"10", b"20"], [b"a", None], [TIME_MS, None])
    assert rows.properties == [{"p": "x", "q": "y"}, {}]
    text = f"v,k,t,p\nhello,a,2026-03-01T12:00:00.250Z,x\n,,,\n,,{TIME_MS},\n"
    (rows,) = of_csv(tmp_path, text, value="v", key="k", event_time="t", properties=("p",))
    assert (list(rows.values), rows.keys) == ([b"hello", b"", b""], [b"a", None, None])
    assert (rows.event_times_ms, rows.properties) == ([TIME_MS, None, TIME_MS], [{"p": "x"}, {}, {}])


def test_csv_fields_are_read_unchanged(tmp_path: Path) -> None:
    """Quotes, line breaks in fields, another delimiter, no header, gzip; no field becomes a number or null."""
    (rows,) = of_csv(tmp_path, 'a,b\n007,"x ""y""\nz"\nnull,NA\n')
    assert [json.loads(bytes(value)) for value in rows.values] == [
        {"a": "007", "b": 'x "y"\nz'}, {"a": "null", "b": "NA"},
    ]  # fmt: skip
    (rows,) = of_csv(tmp_path, "1;2\n3;4\n", delimiter=";", names=("x", "y"), value="y")
    assert list(rows.values) == [b"2", b"4"]
    (tmp_path / "g.csv.gz").write_bytes(gzip.compress(b"a\n1\n"))
    (rows,) = rows_of(tmp_path, "g.csv.gz", ColumnMapping(FileFormat.CSV, value="a"))
    assert list(rows.values) == [b"1"]
    assert of_csv(tmp_path, "a,b\n") == []
    assert of_csv(tmp_path, "") == []


def test_rows_keep_their_number_over_many_batches(tmp_path: Path) -> None:
    """Row n is always the same row: n is its sequence id."""
    count = 25_000
    pieces = of_csv(tmp_path, "a\n" + "".join(f"{n}\n" for n in range(count)), value="a")
    assert len(pieces) > 2
    assert [int(value) for rows in pieces for value in rows.values] == list(range(count))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: of_csv(d, "a,b\n1,2\n1,2,3\n"), r"f\.csv is not a readable csv.*Row #3: .*\(the header is row 1\)"),
        (lambda d: of_csv(d, "t\n\n1\nsoon\n", event_time="t"), r"f\.csv, row 3: column t must be ms .* not 'soon'"),
        (lambda d: of_csv(d, "t\n1\n99999999999999999\n", event_time="t"), r"f\.csv, row 2: .* beyond"),
        (lambda d: of_parquet(d, {"t": pa.array([0, 2**60], pa.timestamp("ms"))}, event_time="t"), r"row 2: "),
        (lambda d: of_parquet(d, {"t": [1_772_366_400_250_000]}, event_time="t"), r"row 1: column t: .* years 1 to"),
        (lambda d: of_parquet(d, {"p": pa.array([[(b"k", b"\xff")]], PAIRS)}, properties=("p",)), r"row 1: .*not UTF"),
        (lambda d: of_csv(d, "\na\n1\n"), r"f\.csv begins with an empty line"),
        (lambda d: of_bytes(d, "a\n1\n".encode("utf-16")), r"f\.csv is UTF-16"),
        (lambda d: of_bytes(d, "a\n1\n".encode("utf-16-le")), r"f\.csv is UTF-16"),
        (lambda d: of_bytes(d, "größe\n1\n".encode("latin-1")), r"f\.csv has a header that is not UTF-8"),
        (lambda d: of_csv(d, "a\n1\n", key="b"), r"f\.csv has no column b; its columns are a"),
        (lambda d: of_csv(d, "a,a\n1,2\n"), r"f\.csv has two columns named a"),
        (lambda d: of_parquet(d, {"v": ["x"] * 12_000 + [None]}, value="v"), r"f\.parquet, row 12001: .* null"),
        (lambda d: of_parquet(d, {"v": [[1]]}, value="v"), r"f\.parquet, row 1: column value is list"),
        (lambda d: of_parquet(d, {"t": [1.5]}, event_time="t"), r"f\.parquet, row 1: column t is double"),
        (lambda d: (d / "f.parquet").write_bytes(b"no") and rows_of(d, "f.parquet", ColumnMapping(FileFormat.PARQUET)),
         r"f\.parquet is not a readable parquet"),
    ],
    ids=["fields", "time", "time beyond", "wraps", "microseconds", "bytes", "empty line", "UTF-16 with mark",
         "UTF-16", "Latin-1", "no column", "column twice", "null", "list", "fraction", "not parquet"],
)  # fmt: skip
def test_a_row_that_cannot_be_a_message_is_named(make: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    """With its file; the first row of data is row 1."""
    with pytest.raises(InvalidArgument, match=message):
        make(tmp_path)


def test_bytes_that_are_not_utf8_are_named_where_a_string_is_needed(tmp_path: Path) -> None:
    """A value may be any bytes."""
    (tmp_path / "f.csv").write_bytes(b"a\nx\n\xff\n")
    (rows,) = rows_of(tmp_path, "f.csv", ColumnMapping(FileFormat.CSV, value="a"))
    assert list(rows.values) == [b"x", b"\xff"]
    with pytest.raises(InvalidArgument, match=r"f\.csv, row 2: "):
        rows_of(tmp_path, "f.csv", CSV)


def test_a_row_that_is_too_large_is_named(tmp_path: Path) -> None:
    """With the limit of the log."""
    with pytest.raises(MessageTooLarge, match=r"f\.parquet, row 2: .* limit of 5242880"):
        of_parquet(tmp_path, {"v": [b"x", b"x" * (5 * 1024 * 1024 + 1)]}, value="v")


def test_files_are_found_by_path_below_the_source(tmp_path: Path) -> None:
    """In order; hidden files are skipped; a single file is a source, too."""
    for name in ("b/2.csv", "a.csv", "b/1.csv", "_tmp/3.csv", "b/.4.csv", "5.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    assert [each.path for each in list_files(str(tmp_path), "*.csv")] == ["a.csv", "b/1.csv", "b/2.csv"]
    (one,) = list_files(str(tmp_path / "b/1.csv"), "*.csv")
    assert (one.path, one.size) == ("1.csv", 4)
    assert checksum_of(open_source(str(tmp_path)), "a.csv") == checksum_of(
        open_source(str(tmp_path / "b/1.csv")), "1.csv"
    )


def test_values_that_python_has_no_type_for_are_kept_exactly(tmp_path: Path) -> None:
    """Times of nanoseconds, durations, and all of them inside of maps, lists and objects; in a slice, too."""
    ns = TIME_MS * 1_000_000 + 1
    columns = {
        "t": pa.array([ns, 0], pa.timestamp("ns", "UTC")),
        "c": pa.array([3_600_000_000_001, 0], pa.time64("ns")),
        "d": pa.array([-1_500, 86_400_000], pa.duration("ms")),
        "l": pa.array([[ns], None], pa.list_(pa.timestamp("ns"))),
        "m": pa.array([[(b"\xff", True)], []], pa.map_(pa.binary(), pa.bool_())),
        "o": pa.array([{"x": float("inf"), "y": ns}, None], pa.struct({"x": pa.float64(), "y": pa.timestamp("ns")})),
        "e": pa.array(["a", "a"]).dictionary_encode(),
    }
    (rows,) = of_parquet(tmp_path, columns)
    text, other = "2026-03-01T12:00:00.250000001", "1970-01-01T00:00:00"
    assert [json.loads(bytes(value)) for value in rows.values] == [
        {"t": f"{text}+00:00", "c": "01:00:00.000000001", "d": "-PT1.5S", "l": [text], "m": [["/w==", True]],
         "o": {"x": "inf", "y": text}, "e": "a"},
        {"t": f"{other}+00:00", "c": "00:00:00", "d": "PT86400S", "l": None, "m": [], "o": None, "e": "a"},
    ]  # fmt: skip
    whole = pa.table(columns)
    (second,) = messages_of("f", iter(whole.slice(1).to_batches()), ColumnMapping(FileFormat.PARQUET))
    assert bytes(second.values[0]) == bytes(rows.values[1])


def test_properties_of_a_map_have_the_text_of_a_column(tmp_path: Path) -> None:
    """Not that of Python, as b'x', True or datetime.time(1, 0)."""
    kinds = {"b": (pa.binary(), b"x"), "s": (pa.bool_(), True), "t": (pa.time64("us"), time(1)), "n": (pa.int8(), 1)}
    columns = {name: pa.array([[(name, value)]], pa.map_(pa.string(), kind)) for name, (kind, value) in kinds.items()}
    (rows,) = of_parquet(tmp_path, {"v": ["x"], **columns}, value="v", properties=tuple(columns))
    assert rows.properties == [{"b": "x", "s": "true", "t": "01:00:00.000000", "n": "1"}]


def test_empty_lines_of_one_column_are_rows(tmp_path: Path) -> None:
    """Of several columns they have too few fields, and are none; as the end of the last line is."""
    (rows,) = of_csv(tmp_path, "a\nx\n\n\ny\n", value="a")
    assert list(rows.values) == [b"x", b"", b"", b"y"]
    (rows,) = of_csv(tmp_path, "a,b\nx,1\n\ny,2\n", value="a")
    assert list(rows.values) == [b"x", b"y"]


def test_a_file_whose_name_is_not_utf8_is_named_and_the_others_are_found(tmp_path: Path) -> None:
    """Arrow has no other names."""
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b\udce9.csv").write_text("a\n1\n")
    refused: list[str] = []
    assert [each.path for each in list_files(str(tmp_path), "*.csv", refused.append)] == ["a.csv"]
    assert [each.rpartition("/")[2] for each in refused] == [
        "b\\xe9.csv: the name of this file is not UTF-8, rename it"
    ]
