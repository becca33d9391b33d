"""A directory, a few topics, and exports and cleans that take one step at a time: what a crash or another run may meet.

The store keeps the promises of `export.store` and no others: files appear as they are written, a manifest whole or not
at all, under a name that was free.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.core.ids import TopicId
from oncelog.pipeline.export import clean as cleaning
from oncelog.pipeline.export import run as core
from oncelog.pipeline.export.manifest import DataFile, Manifest, PartRange
from oncelog.pipeline.export.store import Exported
from oncelog.pipeline.source.offsets import TopicState

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
    """What outlives runs. topics: what the cluster says of them."""

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
    def exported(self) -> Exported:
        return Exported(self.store)

    def read(self) -> list[Row]:
        """What a reader of the manifests finds, sorted. A file that is named must be there."""
        paths = [file.path for manifest in self.exported.manifests() for file in manifest.files]
        return sorted(row for path in paths for row in rows_of(self.store.read(path)))

    def token(self) -> str:
        self.started += 1
        return f"token{self.started}"


def rows_of(data: bytes) -> list[Row]:
    lines = (line.split() for line in data.decode().splitlines())
    return [(topic, topic_id, int(index)) for topic, topic_id, index in lines]


def written(path: str, data: bytes) -> core.Written:
    """As reading back tells it."""
    rows = rows_of(data)
    numbers = [index for _, _, index in rows]
    file = DataFile(path, rows[0][0], len(data), len(rows), min(numbers), max(numbers), "sum")
    return core.Written(file, sum(numbers))


class Export:
    """One run. `step` does one thing that a crash may follow."""

    def __init__(self, world: World, *, loss_allowed: bool = False, topics: str = "") -> None:
        self.world = world
        self._topics = topics
        self.core = core.ExportRun(world.token(), 0, self.covers, loss_allowed=loss_allowed)
        self.outcome: core.Finish | core.Refuse | None = None
        self._steps = self._run()

    def covers(self, topic: str) -> bool:
        return topic.startswith(self._topics)

    def step(self) -> bool:
        """Whether there was something to do."""
        return next(self._steps, None) is not None

    def run(self) -> core.Finish | core.Refuse:
        while self.step():
            pass
        assert self.outcome is not None
        return self.outcome

    def _run(self) -> Iterator[str]:
        event: core.Event = core.Begin()
        exported, store = self.world.exported, self.world.store
        while True:
            (effect,) = self.core.handle(event)
            if isinstance(effect, core.Finish | core.Refuse):
                self.outcome = effect
                return
            yield type(effect).__name__
            match effect:
                case core.ReadLast():
                    event = core.LastRead(exported.last())
                case core.AskTopics():
                    event = core.TopicsTold({t: s for t, s in self.world.topics.items() if self.covers(t)})
                case core.WriteFiles(run, ranges):
                    exported.claim(run)
                    yield "claimed"
                    for number, piece in enumerate(self._pieces(ranges)):
                        store.write(f"{run}/{number}", "\n".join(f"{t} {i} {n}" for t, i, n in piece).encode())
                        yield "file"
                    sizes = exported.sizes(run)
                    event = core.FilesWritten([written(path, store.read(path)) for path in sizes])
                case core.Commit(manifest):
                    taken = exported.commit(manifest)
                    event = core.Committed() if taken is None else core.Taken(taken)
                case core.Remove(run):
                    exported.remove(run)
                    event = core.Removed()

    def _pieces(self, ranges: tuple[PartRange, ...]) -> Iterator[list[Row]]:
        """What a cluster gives now, cut into files."""
        for each in ranges:
            state = self.world.topics[each.topic]
            rows = [(each.topic, str(state.topic_id), n) for n in range(max(each.kept, state.earliest), each.end)]
            yield from (rows[at : at + FILE_ROWS] for at in range(0, len(rows), FILE_ROWS))


class Clean:
    """One clean, step by step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.core = cleaning.Clean(world.token(), 0)
        self.outcome: cleaning.Finish | cleaning.Refuse | None = None
        self._steps = self._run()

    def step(self) -> bool:
        return next(self._steps, None) is not None

    def run(self) -> cleaning.Finish | cleaning.Refuse:
        while self.step():
            pass
        assert self.outcome is not None
        return self.outcome

    def _run(self) -> Iterator[str]:
        event: cleaning.Event = cleaning.Begin()
        exported = self.world.exported
        while True:
            (effect,) = self.core.handle(event)
            if isinstance(effect, cleaning.Finish | cleaning.Refuse):
                self.outcome = effect
                return
            yield type(effect).__name__
            match effect:
                case cleaning.List():
                    event = cleaning.Listed(exported.runs())
                case cleaning.ReadManifests():
                    event = cleaning.ManifestsRead(exported.manifests())
                case cleaning.Fence(manifest):
                    taken = exported.commit(manifest)
                    event = cleaning.Fenced() if taken is None else cleaning.Taken(taken)
                case cleaning.Remove(runs):
                    for run in runs:
                        exported.remove(run)
                        yield "removed"
                    event = cleaning.Removed()


def all_of(**topics: int) -> list[Row]:
    """Every message of topics whose id is `id`, once."""
    return sorted((topic, "id", number) for topic, count in topics.items() for number in range(count))


def manifest_of(outcome: object) -> Manifest | None:
    assert isinstance(outcome, core.Finish), outcome
    return outcome.manifest
