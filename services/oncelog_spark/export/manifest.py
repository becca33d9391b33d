"""What an export has committed: manifests, one JSON file for each run that succeeded. Pure: bytes in, values out.

    DIR/_manifests/000000042.json              manifest 42; made once, never changed
    DIR/run=000042-5f0c2d1e/topic=…/date=…/…   its files; a run that is in no manifest is a leftover
    DIR/_runs/run=000042-5f0c2d1e              claims this directory for the export, from before it is made until a
                                               manifest names it or it is deleted

Manifest n + 1 continues where manifest n ended: each manifest has the position up to which every partition is exported,
so the last manifest is enough to continue. All manifests together name the files of the export. Their numbers have no
gaps.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.core.errors import CorruptEntry, LogHole
from oncelog.core.ids import TopicId
from oncelog_spark.source.offsets import GivenUpNumbers

FORMAT = 1
#: Of a manifest with numbers that were given up: a version that does not know them would find its files incomplete.
FORMAT_GIVEN_UP = 2
KIND = "oncelog export"
MANIFESTS = "_manifests"
RUN = "run="
RUNS = "_runs"
_RUN_KIND = "oncelog export run"
_RUN_NAME = re.compile(r"run=[0-9]{6,}-[0-9A-Za-z]+")
_SUFFIX = ".json"
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class ExportedPosition:
    """Messages below `next` of the partition with this id are exported. gone: the topic was deleted, and that was
    allowed."""

    topic_id: TopicId
    next: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Messages first to end - 1 of one partition, of which those below `kept` were lost before they could be read.

    given_up: numbers behind `kept` that the log leaves out, ascending.
    """

    topic: str
    topic_id: TopicId
    first: int
    end: int
    kept: int
    given_up: tuple[GivenUpNumbers, ...] = ()

    @property
    def rows(self) -> int:
        return sum(last - first for first, last in self.pieces())

    def pieces(self) -> list[tuple[int, int]]:
        """[(first, end)] of the numbers that the files hold."""
        edges = [self.kept, *(edge for gap in self.given_up for edge in gap), self.end]
        return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end]


@dataclass(frozen=True, slots=True)
class DataFile:
    """path: below the export's directory. first, last: the lowest and highest number in it. checksum: of its rows."""

    path: str
    topic: str
    size_bytes: int
    rows: int
    first: int
    last: int
    checksum: str


@dataclass(frozen=True, slots=True)
class ExportManifest:
    """run: the name of its directory. ranges: what this run adds. reached: {partition: how far it is exported}, by all
    runs."""

    number: int
    run: str
    made_ms: int
    ranges: tuple[PartitionRange, ...] = ()
    files: tuple[DataFile, ...] = ()
    reached: Mapping[str, ExportedPosition] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)


def manifest_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_SUFFIX}"


def manifest_number(name: str) -> int | None:
    """None: not the name of a manifest."""
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and digits.isascii() and digits.isdigit() else None


def run_name(number: int, token: str) -> str:
    """token: of this run; no other run ever has it."""
    return f"{RUN}{number:06d}-{token}"


def encode_claim(run: str) -> bytes:
    """The content of the file by which a run claims its directory."""
    return json.dumps({"format": FORMAT, "kind": _RUN_KIND, "run": run}).encode() + b"\n"


def is_claim(name: str, data: bytes) -> bool:
    """Whether a file of this name and content claims the directory of that name. False: the file is not an export's."""
    if _RUN_NAME.fullmatch(name) is None:
        return False
    try:
        fields = json.loads(data)
    except ValueError:
        return False
    return isinstance(fields, dict) and (fields.get("kind"), fields.get("run")) == (_RUN_KIND, name)


def encode_manifest(manifest: ExportManifest) -> bytes:
    """JSON, also for other programs; field names are part of the format."""
    fields: dict[str, Any] = {
        "format": FORMAT_GIVEN_UP if any(each.given_up for each in manifest.ranges) else FORMAT,
        "kind": KIND,
        "number": manifest.number,
        "run": manifest.run,
        "made_ms": manifest.made_ms,
        "ranges": [
            {"topic": r.topic, "topic_id": r.topic_id, "from": r.first, "to": r.end, "kept_from": r.kept}
            | ({"given_up": [list(gap) for gap in r.given_up]} if r.given_up else {})
            for r in manifest.ranges
        ],
        "files": [
            {
                "path": f.path,
                "topic": f.topic,
                "bytes": f.size_bytes,
                "rows": f.rows,
                "first": f.first,
                "last": f.last,
                "checksum": f.checksum,
            }
            for f in manifest.files
        ],
        "reached": {
            topic: {"topic_id": r.topic_id, "next": r.next} | ({"gone": True} if r.gone else {})
            for topic, r in sorted(manifest.reached.items())
        },
    }
    return json.dumps(fields, indent=1).encode() + b"\n"


def decode_manifest(number: int, data: bytes) -> ExportManifest:
    """Raises CorruptEntry where the bytes are not a manifest of this number."""
    name = manifest_name(number)
    try:
        fields = json.loads(data)
        known = fields["format"] in (FORMAT, FORMAT_GIVEN_UP)
        if not known or (fields["kind"], fields["number"]) != (KIND, number):
            raise CorruptEntry(f"{MANIFESTS}/{name} is not manifest {number} of format {FORMAT} or {FORMAT_GIVEN_UP}")
        return ExportManifest(
            number,
            str(fields["run"]),
            int(fields["made_ms"]),
            tuple(_range(each) for each in fields["ranges"]),
            tuple(_file(each) for each in fields["files"]),
            {
                str(topic): ExportedPosition(TopicId(r["topic_id"]), int(r["next"]), bool(r.get("gone", False)))
                for topic, r in fields["reached"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{MANIFESTS}/{name} cannot be read ({type(error).__name__}: {error}): restore a good copy"
        raise CorruptEntry(message) from error


def check_dense(manifests: Iterable[ExportManifest]) -> None:
    """Raises LogHole where a manifest is missing: its messages would be exported again, or readers would miss them."""
    for expected, manifest in enumerate(manifests):
        if manifest.number != expected:
            message = f"{MANIFESTS}/{manifest_name(expected)} is missing, although later manifests exist: restore it"
            raise LogHole(message)


def _range(fields: Mapping[str, Any]) -> PartitionRange:
    topic_id = TopicId(str(fields["topic_id"]))
    given_up = tuple(GivenUpNumbers(int(first), int(end)) for first, end in fields.get("given_up", ()))
    return PartitionRange(
        str(fields["topic"]), topic_id, int(fields["from"]), int(fields["to"]), int(fields["kept_from"]), given_up
    )


def _file(fields: Mapping[str, Any]) -> DataFile:
    first, last, rows = int(fields["first"]), int(fields["last"]), int(fields["rows"])
    return DataFile(
        str(fields["path"]), str(fields["topic"]), int(fields["bytes"]), rows, first, last, str(fields["checksum"])
    )
