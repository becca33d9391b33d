"""The jobs of the proof: how each is called, what can be seen of its work, and how what it made is judged."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oncelog.pipeline.sink.names import journal_topic
from tests.cluster.cluster_fixture import START_S, Cluster
from tests.cluster.until import until
from tests.jobs_proof.inputs import (
    SOURCE,
    Files,
    all_files,
    exported,
    named_files,
    part_topic,
    wanted_of_compaction,
    wanted_of_export,
    wanted_of_import,
)
from tests.jobs_proof.plan import Job, Moment, Sight, Strike
from tests.jobs_proof.watching import ExportWatch, TopicWatch
from tests.spark_proof.flights import Row, Verdict, compare
from tests.spark_proof.source_topic import stored

#: One file is one task of an export.
ROWS_PER_FILE = 1000
#: Rows that a task of a compaction stages at once: many steps, so that there is an amid.
STAGED_ROWS = 100
#: What an import is known by.
NAME = "landing"

Answer = dict[str, Any]
#: Runs a command of the job to its end, which must be a good one: what it printed.
Run = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """added: messages that one more run added. control: what a reader gets who disregards what makes the job exactly
    once; it must be doubled. None: everything that is there counts."""

    verdict: Verdict
    added: int
    control: Verdict | None
    complaints: tuple[str, ...]


class ProvenJob(Protocol):
    """What the run needs to know of a job."""

    job: Job
    total: int

    @property
    def words(self) -> list[str]:
        """Behind `oncelog pipeline`."""

    async def begin(self) -> None:
        """What is there now is no work of the next start."""

    async def look(self) -> Sight | None:
        """None: it cannot be seen just now."""

    async def topic_of(self, strike: Strike) -> str:
        """Whose owner the strike kills."""

    async def judged(self, run: Run) -> Judged:
        """Once it has ended. Runs it again."""


class ExportJob:
    """Two waves of the source, into one directory."""

    job = Job.EXPORT

    def __init__(self, cluster: Cluster, directory: Path, parts: Sequence[Sequence[Row]], waves: int) -> None:
        self._url = cluster.url
        self._parts = parts
        self._directory = directory / "export"
        self._watch = ExportWatch(self._directory)
        self.total = sum(map(len, parts)) // ROWS_PER_FILE // waves

    @property
    def words(self) -> list[str]:
        own = ["--to", str(self._directory), "--rows-per-file", str(ROWS_PER_FILE)]
        return ["export", SOURCE, *own, "--url", self._url]

    async def begin(self) -> None:
        self._watch.begin()

    async def look(self) -> Sight | None:
        tasks, in_place, manifests = self._watch.look()
        return Sight(tasks=tasks, in_place=in_place, manifests=manifests)

    async def topic_of(self, strike: Strike) -> str:
        return part_topic(strike.part)

    async def judged(self, run: Run) -> Judged:
        """The control reads all files, whether a manifest names them or not."""
        complaints = []
        reference = wanted_of_export(self._parts)
        control = compare(reference, [found for _, _, found in exported(all_files(self._directory))])
        about = ["export", "--to", str(self._directory)]
        before = await run([*about, "--verify"])
        removed = await run([*about, "--clean"])
        after = await run([*about, "--verify"])
        complaints += [f"verify: {text}" for told in (before, after) for text in told["problems"]]
        if not removed["removed"]:
            complaints.append("clean found nothing of the runs that were killed")
        if len(all_files(self._directory)) != after["files"]:
            complaints.append("clean left files that no manifest names")
        again = await run(self.words)
        rows = list(exported(named_files(self._directory)))
        for part, expected in enumerate(self._parts):
            if [number for where, number, _ in rows if where == part] != list(range(len(expected))):
                complaints.append(f"the numbers of part {part} are not 0 to {len(expected) - 1}, in order")
        return Judged(compare(reference, [each for _, _, each in rows]), again["rows"], control, tuple(complaints))


class ImportJob:
    """A directory of files, into a topic."""

    def __init__(self, job: Job, cluster: Cluster, watch: TopicWatch, source: Path, files: Files) -> None:
        self.job = job
        self._url = cluster.url
        self._watch = watch
        self._source = source
        self._files = files
        self._target = f"public/default/jobs-{job.replace(' ', '-')}"
        self._journal = journal_topic(self._target, f"import\n{NAME}")
        self.total = sum(map(len, files.values()))

    @property
    def words(self) -> list[str]:
        own = ["--topic", self._target, "--name", NAME, "--format", self.job.split()[-1]]
        return ["import", str(self._source), *own, "--key", "key", "--value", "line", "--url", self._url]

    async def begin(self) -> None:
        """Rows and records of earlier starts are part of its work."""

    async def look(self) -> Sight | None:
        counts = await self._watch.counts([self._target, self._journal])
        return None if counts is None else Sight(rows=counts[0], records=counts[1])

    async def topic_of(self, _strike: Strike) -> str:
        return self._target

    async def judged(self, run: Run) -> Judged:
        complaints = []
        again = await run(self.words)
        if (again["found"], again["done"]) != (len(self._files), len(self._files)):
            complaints.append(f"{again['done']} of {again['found']} files are known as done, not {len(self._files)}")
        found = await stored(self._url, self._target)
        verdict = compare(wanted_of_import(NAME, self._files), found)
        return Judged(verdict, again["rows"], None, tuple(complaints))


class CompactJob:
    """All of the source, into a topic."""

    job = Job.COMPACT

    def __init__(self, cluster: Cluster, watch: TopicWatch, parts: Sequence[Sequence[Row]]) -> None:
        self._url = cluster.url
        self._watch = watch
        self._admin_url = f"http://{cluster.serving('metadata-1', 'http')}"
        self._reference = wanted_of_compaction(parts)
        self._target = "public/default/jobs-last"
        self._staged_before = 0
        self.total = len(self._reference)

    @property
    def words(self) -> list[str]:
        batches = f"spark.sql.execution.arrow.maxRecordsPerBatch={STAGED_ROWS}"
        return ["compact", SOURCE, "--to", self._target, "--url", self._url, "--conf", batches]

    async def begin(self) -> None:
        sight = await until(self.look, START_S, waiting_for="what earlier starts have staged")
        assert sight is not None
        self._staged_before += sight.staged

    async def look(self) -> Sight | None:
        journal, stage = await self._hidden()
        counts = await self._watch.counts([self._target, *filter(None, (journal, stage))])
        if counts is None:
            return None
        told = dict(
            zip(["target", *(["journal"] if journal else []), *(["stage"] if stage else [])], counts, strict=True)
        )
        staged = told.get("stage", 0) - self._staged_before
        return Sight(rows=told["target"], records=told.get("journal", 0), staged=staged)

    async def _hidden(self) -> tuple[str, str]:
        journal, stage = await asyncio.gather(
            self._watch.hidden(self._target, ".journal"), self._watch.hidden(self._target, ".stage.0")
        )
        return journal, stage

    async def topic_of(self, strike: Strike) -> str:
        return (await self._hidden())[1] if strike.moment is Moment.STAGING else self._target

    async def judged(self, run: Run) -> Judged:
        """The control takes everything that was staged, whoever won. The last run deletes that."""
        complaints = []
        _, stage = await self._hidden()
        control = compare(self._reference, await stored(self._url, stage))
        before = len(await stored(self._url, self._target))
        again = await run([*self.words, "--admin-url", self._admin_url])
        if not again["repeated"] or again["others"]:
            complaints.append(f"one more run does not know that it is done: {again}")
        if (await self._hidden())[1]:
            complaints.append("what was staged is still there, though a run with --admin-url has ended")
        found = await stored(self._url, self._target)
        return Judged(compare(self._reference, found), len(found) - before, control, tuple(complaints))
