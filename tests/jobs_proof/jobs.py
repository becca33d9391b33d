"""The jobs of the proof: the command of each, its visible results, and how its result is checked."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from oncelog_spark.sink.names import journal_topic
from tests.cluster.cluster_fixture import START_S, Cluster
from tests.cluster.until import until
from tests.jobs_proof.inputs import (
    SOURCE,
    Files,
    all_files,
    exported,
    named_files,
    partition_topic,
    wanted_of_compaction,
    wanted_of_export,
    wanted_of_import,
)
from tests.jobs_proof.plan import Fault, Job, JobState, Stage
from tests.jobs_proof.watching import ExportWatch, TopicWatch
from tests.proofs.flights import Row, Verdict, compare
from tests.proofs.source_topic import stored

#: One file is one task of an export.
ROWS_PER_FILE = 1000
#: Rows that a task of a compaction stages at once: many steps, so that it can be killed between them.
STAGED_ROWS = 100
#: The name of an import.
NAME = "landing"

Answer = dict[str, Any]
#: Runs a command of the job, which must succeed; returns its output.
Run = Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class Checked:
    """added: messages that one more run added. control: the result without the job's protection (for example all files,
    without regard to manifests); it must have duplicates. None: the job has no such control."""

    verdict: Verdict
    added: int
    control: Verdict | None
    complaints: tuple[str, ...]

    @property
    def wrong(self) -> list[str]:
        """Besides the verdict."""
        found = list(self.complaints)
        if self.added:
            found.append(f"one more run added {self.added} messages")
        if self.control is not None and not self.control.duplicated:
            found.append("the control has no duplicates: the kills prove nothing")
        return found


class ProvenJob(Protocol):
    """A job, as the run uses it."""

    job: Job
    total: int

    @property
    def words(self) -> list[str]:
        """The arguments of `oncelog pipeline`."""

    async def begin(self) -> None:
        """Existing results do not count for the next start."""

    async def observe(self) -> JobState | None:
        """The visible results; None: not available now."""

    async def topic_of(self, fault: Fault) -> str:
        """The topic whose owner the fault kills."""

    async def checked(self, run: Run) -> Checked:
        """Check the result once the job has ended. Runs the job again."""


class ExportJob:
    """Two waves of the source, into one directory."""

    job = Job.EXPORT

    def __init__(self, cluster: Cluster, directory: Path, partitions: Sequence[Sequence[Row]], waves: int) -> None:
        self._url = cluster.url
        self._parts = partitions
        self._directory = directory / "export"
        self._watch = ExportWatch(self._directory)
        self.total = sum(map(len, partitions)) // ROWS_PER_FILE // waves

    @property
    def words(self) -> list[str]:
        own = ["--to", str(self._directory), "--rows-per-file", str(ROWS_PER_FILE)]
        return ["export", SOURCE, *own, "--url", self._url]

    async def begin(self) -> None:
        self._watch.begin()

    async def observe(self) -> JobState | None:
        tasks, in_place, manifests = self._watch.observe()
        return JobState(tasks=tasks, in_place=in_place, manifests=manifests)

    async def topic_of(self, fault: Fault) -> str:
        return partition_topic(fault.partition)

    async def checked(self, run: Run) -> Checked:
        """The control reads all files, without regard to manifests."""
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
        for partition, expected in enumerate(self._parts):
            if [number for where, number, _ in rows if where == partition] != list(range(len(expected))):
                complaints.append(f"the numbers of part {partition} are not 0 to {len(expected) - 1}, in order")
        return Checked(compare(reference, [each for _, _, each in rows]), again["rows"], control, tuple(complaints))


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
        """Rows and records of earlier starts count."""

    async def observe(self) -> JobState | None:
        counts = await self._watch.counts([self._target, self._journal])
        return None if counts is None else JobState(rows=counts[0], records=counts[1])

    async def topic_of(self, _inject: Fault) -> str:
        return self._target

    async def checked(self, run: Run) -> Checked:
        complaints = []
        again = await run(self.words)
        if (again["found"], again["done"]) != (len(self._files), len(self._files)):
            complaints.append(f"{again['done']} of {again['found']} files are known as done, not {len(self._files)}")
        found = await stored(self._url, self._target)
        verdict = compare(wanted_of_import(NAME, self._files), found)
        return Checked(verdict, again["rows"], None, tuple(complaints))


class CompactJob:
    """All of the source, into a topic."""

    job = Job.COMPACT

    def __init__(self, cluster: Cluster, watch: TopicWatch, partitions: Sequence[Sequence[Row]]) -> None:
        self._url = cluster.url
        self._watch = watch
        self._admin_url = f"http://{cluster.serving('metadata-1', 'http')}"
        self._reference = wanted_of_compaction(partitions)
        self._target = "public/default/jobs-last"
        self._staged_before = 0
        self.total = len(self._reference)

    @property
    def words(self) -> list[str]:
        batches = f"spark.sql.execution.arrow.maxRecordsPerBatch={STAGED_ROWS}"
        return ["compact", SOURCE, "--to", self._target, "--url", self._url, "--conf", batches]

    async def begin(self) -> None:
        state = await until(self.observe, START_S, waiting_for="what earlier starts have staged")
        assert state is not None
        self._staged_before += state.staged

    async def observe(self) -> JobState | None:
        journal, stage = await self._hidden()
        counts = await self._watch.counts([self._target, *filter(None, (journal, stage))])
        if counts is None:
            return None
        told = dict(
            zip(["target", *(["journal"] if journal else []), *(["stage"] if stage else [])], counts, strict=True)
        )
        staged = told.get("stage", 0) - self._staged_before
        return JobState(rows=told["target"], records=told.get("journal", 0), staged=staged)

    async def _hidden(self) -> tuple[str, str]:
        journal, stage = await asyncio.gather(
            self._watch.hidden(self._target, ".journal"), self._watch.hidden(self._target, ".stage.0")
        )
        return journal, stage

    async def topic_of(self, fault: Fault) -> str:
        return (await self._hidden())[1] if fault.stage is Stage.STAGING else self._target

    async def checked(self, run: Run) -> Checked:
        """The control takes all staged rows, of all attempts. The last run deletes them."""
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
        return Checked(compare(self._reference, found), len(found) - before, control, tuple(complaints))
