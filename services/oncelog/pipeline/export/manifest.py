"""What an export has committed: manifests, one file of JSON for each run that ended well. Pure: bytes in, values out.

    DIR/_manifests/000000042.json              manifest 42; made once, never changed
    DIR/run=000042-5f0c2d1e/topic=…/date=…/…   its files; a run that is in no manifest is a leftover
    DIR/_runs/run=000042-5f0c2d1e              claims that directory for the export, from before it is made on until a
                                               manifest names it or it is deleted

Manifest n + 1 goes on where manifest n ended: it carries how far every topic part is exported, so the last one is
enough to go on. All of them together name the files of the export. Numbers leave no gap.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.core.errors import CorruptEntry, LogHole
from oncelog.core.ids import TopicId

FORMAT = 1
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
    """Messages below `next` of the topic part with this id are exported. gone: the topic was not there any more, and
    that was allowed."""

    topic_id: TopicId
    next: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Messages first to end - 1 of one topic part, of which those below `kept` were lost before they could be read."""

    topic: str
    topic_id: TopicId
    first: int
    end: int
    kept: int

    @property
    def rows(self) -> int:
        return self.end - self.kept


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
    """run: the name of its directory. ranges: what this run adds. reached: {topic part: how far}, of all runs."""

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
    """None: no name of a manifest."""
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and digits.isascii() and digits.isdigit() else None


def run_name(number: int, token: str) -> str:
    """token: of this very run; no other ever has it."""
    return f"{RUN}{number:06d}-{token}"


def encode_claim(run: str) -> bytes:
    """What stands in the file by which a run claims its directory."""
    return json.dumps({"format": FORMAT, "kind": _RUN_KIND, "run": run}).encode() + b"\n"


def is_claim(name: str, data: bytes) -> bool:
    """Whether a file of this name and content claims the directory of that name. False: it is somebody else's file."""
    if _RUN_NAME.fullmatch(name) is None:
        return False
    try:
        told = json.loads(data)
    except ValueError:
        return False
    return isinstance(told, dict) and (told.get("kind"), told.get("run")) == (_RUN_KIND, name)


def encode_manifest(manifest: ExportManifest) -> bytes:
    """JSON for people and programs; field names are part of the format."""
    told: dict[str, Any] = {
        "format": FORMAT,
        "kind": KIND,
        "number": manifest.number,
        "run": manifest.run,
        "made_ms": manifest.made_ms,
        "ranges": [
            {"topic": r.topic, "topic_id": r.topic_id, "from": r.first, "to": r.end, "kept_from": r.kept}
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
    return json.dumps(told, indent=1).encode() + b"\n"


def decode_manifest(number: int, data: bytes) -> ExportManifest:
    """Raises CorruptEntry where the bytes are no manifest of this number."""
    name = manifest_name(number)
    try:
        told = json.loads(data)
        if (told["format"], told["kind"], told["number"]) != (FORMAT, KIND, number):
            raise CorruptEntry(f"{MANIFESTS}/{name} is no manifest {number} of format {FORMAT}")
        return ExportManifest(
            number,
            str(told["run"]),
            int(told["made_ms"]),
            tuple(_range(each) for each in told["ranges"]),
            tuple(_file(each) for each in told["files"]),
            {
                str(topic): ExportedPosition(TopicId(r["topic_id"]), int(r["next"]), bool(r.get("gone", False)))
                for topic, r in told["reached"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{MANIFESTS}/{name} cannot be read ({type(error).__name__}: {error}): put a good copy back"
        raise CorruptEntry(message) from error


def check_dense(manifests: Iterable[ExportManifest]) -> None:
    """Raises LogHole where one is missing: what it names would be exported again, or be missed by readers."""
    for expected, manifest in enumerate(manifests):
        if manifest.number != expected:
            message = f"{MANIFESTS}/{manifest_name(expected)} is missing, but later ones are there: put it back"
            raise LogHole(message)


def _range(told: Mapping[str, Any]) -> PartitionRange:
    topic_id = TopicId(str(told["topic_id"]))
    return PartitionRange(str(told["topic"]), topic_id, int(told["from"]), int(told["to"]), int(told["kept_from"]))


def _file(told: Mapping[str, Any]) -> DataFile:
    first, last, rows = int(told["first"]), int(told["last"]), int(told["rows"])
    return DataFile(str(told["path"]), str(told["topic"]), int(told["bytes"]), rows, first, last, str(told["checksum"]))
