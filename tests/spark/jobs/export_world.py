"""A directory, a few topics, and exports and cleans that take one step at a time, with crashes and other runs between
the steps.

The store gives only the guarantees of `export.store`: files appear as they are written, a manifest appears atomically,
under a name that was free.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oncelog.core.ids import TopicId
from oncelog_spark.export.clean import DirectorySize, Leftover, clean
from oncelog_spark.export.manifest import DataFile, ExportManifest, PartitionRange
from oncelog_spark.export.run import RunResult, VerifiedFile, run_export
from oncelog_spark.export.store import ExportStore
from oncelog_spark.source.offsets import TopicState
from tests.spark.steps import Stepped

Row = tuple[str, str, int]
#: Rows of a file, so that a run has several.
FILE_ROWS = 3


@dataclass
class MemoryStore:
    """{path: bytes}."""

    files: dict[str, bytes] = field(default_factory=dict)

    def names(self, path: str) -> list[str]:
        below = f"{path}/" if path else ""
        return sorted({each[len(below) :].partition("/")[0] for each in self.files if each.startswith(below)})

    def read(self, path: str) -> bytes:
        return self.files[path]

    def write(self, path: str, data: bytes) -> None:
        assert path not in self.files
        self.files[path] = data

    def publish(self, draft: str, path: str) -> bool:
        return self.files.setdefault(path, self.files[draft]) is self.files[draft]

    def sizes(self, path: str) -> dict[str, int]:
        return {each: len(data) for each, data in self.files.items() if each.startswith(f"{path}/")}

    def remove(self, path: str) -> None:
        for each in (path, *self.sizes(path)):
            self.files.pop(each, None)


@dataclass
class World:
    """The state that outlives runs. topics: their states in the cluster."""

    store: MemoryStore = field(default_factory=MemoryStore)
    topics: dict[str, TopicState] = field(default_factory=dict)
    started: int = 0

    def publish(self, topic: str, count: int, *, topic_id: str = "id") -> None:
        state = self.topics.get(topic) or TopicState(topic, TopicId(topic_id), 0, 0)
        self.topics[topic] = TopicState(topic, state.topic_id, state.earliest, state.next + count)

    def trim(self, topic: str, earliest: int) -> None:
        state = self.topics[topic]
        self.topics[topic] = TopicState(topic, state.topic_id, earliest, state.next)

    @property
    def exported(self) -> ExportStore:
        return ExportStore(self.store)

    def read(self) -> list[Row]:
        """The rows that a reader of the manifests finds, sorted. A file that a manifest names must exist."""
        paths = [file.path for manifest in self.exported.manifests() for file in manifest.files]
        return sorted(row for path in paths for row in rows_of(self.store.read(path)))

    def token(self) -> str:
        self.started += 1
        return f"token{self.started}"


def rows_of(data: bytes) -> list[Row]:
    lines = (line.split() for line in data.decode().splitlines())
    return [(topic, topic_id, int(index)) for topic, topic_id, index in lines]


def verified(path: str, data: bytes) -> VerifiedFile:
    """The file as it is read back."""
    rows = rows_of(data)
    numbers = [index for _, _, index in rows]
    file = DataFile(path, rows[0][0], len(data), len(rows), min(numbers), max(numbers), "sum")
    return VerifiedFile(file, sum(numbers))


class Export(Stepped[RunResult]):
    """One run, and the `ExportSteps` that it calls. A crash may follow each step."""

    def __init__(
        self,
        world: World,
        *,
        loss_allowed: bool = False,
        topics: str = "",
        read_back: Sequence[VerifiedFile] | None = None,
    ) -> None:
        """read_back: the contents of its files, in place of what it wrote."""
        super().__init__()
        self.world = world
        #: the directory of this run, once it has one
        self.run_name = ""
        #: how often it has requested the topics' states
        self.asked = 0
        self._topics = topics
        self._loss_allowed = loss_allowed
        self._token = world.token()
        self._read_back = read_back

    def covers(self, topic: str) -> bool:
        return topic.startswith(self._topics)

    def work(self) -> RunResult:
        return run_export(self, self._token, 0, self.covers, loss_allowed=self._loss_allowed)

    def last_manifest(self) -> ExportManifest | None:
        self.pause()
        return self.world.exported.last()

    def topic_states(self) -> Mapping[str, TopicState]:
        self.asked += 1
        self.pause()
        return {topic: state for topic, state in self.world.topics.items() if self.covers(topic)}

    def write_files(self, number: int, run: str, ranges: Sequence[PartitionRange]) -> Sequence[VerifiedFile]:
        self.run_name = run
        exported, store = self.world.exported, self.world.store
        self.pause()
        exported.claim(run)
        self.pause()
        for at, piece in enumerate(self._pieces(ranges)):
            store.write(f"{run}/{at}", "\n".join(f"{t} {i} {n}" for t, i, n in piece).encode())
            self.pause()
        found = [verified(path, store.read(path)) for path in exported.sizes(run)]
        return found if self._read_back is None else self._read_back

    def commit(self, manifest: ExportManifest) -> str | None:
        self.pause()
        return self.world.exported.commit(manifest)

    def remove(self, run: str) -> None:
        self.pause()
        self.world.exported.remove(run)

    def _pieces(self, ranges: Sequence[PartitionRange]) -> Iterator[list[Row]]:
        """The messages that the cluster has now, split into files."""
        for each in ranges:
            state = self.world.topics[each.topic]
            rows = [
                (each.topic, str(state.topic_id), n)
                for first, end in each.pieces()
                for n in range(max(first, state.earliest), end)
            ]
            yield from (rows[at : at + FILE_ROWS] for at in range(0, len(rows), FILE_ROWS))


class Clean(Stepped[tuple[Leftover, ...]]):
    """One clean, and the `RunStore` that it cleans. A crash may follow each step."""

    def __init__(self, world: World, *, overtaken: bool = False) -> None:
        """overtaken: another run stores each number first."""
        super().__init__()
        self.world = world
        self._token = world.token()
        self._overtaken = overtaken

    def work(self) -> tuple[Leftover, ...]:
        return clean(self, self._token, 0)

    def runs(self) -> Sequence[str]:
        self.pause()
        return self.world.exported.runs()

    def manifests(self) -> Sequence[ExportManifest]:
        self.pause()
        return self.world.exported.manifests()

    def commit(self, manifest: ExportManifest) -> str | None:
        self.pause()
        return "run=000000-other" if self._overtaken else self.world.exported.commit(manifest)

    def size_of(self, run: str) -> DirectorySize:
        return self.world.exported.size_of(run)

    def remove(self, run: str) -> None:
        self.pause()
        self.world.exported.remove(run)


def all_of(**topics: int) -> list[Row]:
    """Every message of topics whose id is `id`, once."""
    return sorted((topic, "id", number) for topic, count in topics.items() for number in range(count))


def manifest_of(outcome: object) -> ExportManifest | None:
    assert isinstance(outcome, RunResult), outcome
    return outcome.manifest
