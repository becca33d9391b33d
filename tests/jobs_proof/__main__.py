"""`python -m tests.jobs_proof [--seed N] [--lines N] [--only JOB …] [-o json]`: jobs of the command line under kills.

`oncelog pipeline export`, `import` and `compact` are started as from a user's shell, and killed with SIGKILL, with Java
and all workers, each time when their visible results show a planned stage; topic owners are killed meanwhile. The jobs
are restarted until they end. The exit code is 0 when their results equal those of one process of plain Python, each
message once, one more run adds nothing, every planned kill was made, and an audit of all topics is good.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oncelog_lab.demo.flights import FLIGHTS, cache_directory, fetch
from tests.cluster.cluster_fixture import Cluster
from tests.jobs_proof.audited import Audited
from tests.jobs_proof.inputs import SOURCE, WAVES, Files, cut, messages_of, partition_topic, wave_of, write_files
from tests.jobs_proof.job_run import JobRun
from tests.jobs_proof.jobs import CompactJob, ExportJob, ImportJob, ProvenJob
from tests.jobs_proof.plan import Job, JobPlan, plans
from tests.jobs_proof.process import JobProcess
from tests.jobs_proof.watching import TopicWatch
from tests.proofs.command import prove_by_command
from tests.proofs.flights import PARTITIONS, Row
from tests.proofs.report import Outcome, Report
from tests.proofs.source_topic import Filled, create, publish

#: Rows of a file: large files, with several calls each, and many small ones.
IMPORTED_ROWS = {Job.IMPORT_PARQUET: 3_000, Job.IMPORT_CSV: 400}


class Proof:
    """One run: the source, which grows in waves, and the jobs on it, one after the other."""

    def __init__(
        self, cluster: Cluster, watch: TopicWatch, directory: Path, partitions: Sequence[Sequence[Row]]
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._directory = directory
        self._parts = partitions
        self._wave = 0
        self.filled = Filled()

    async def run(self, plan: JobPlan) -> Outcome:
        place = self._directory / plan.job.replace(" ", "-")
        own = await self._job(plan, place)
        publish = self._published if plan.job is Job.EXPORT else self._nothing
        outcome = await JobRun(plan, own, self._cluster, place, publish).run()
        injected = sum(outcome.hits.values())
        print(f"{plan.job}: {injected} kills, {outcome.verdict}, {outcome.seconds:.0f} s", file=sys.stderr)
        return outcome

    async def _job(self, plan: JobPlan, place: Path) -> ProvenJob:
        match plan.job:
            case Job.EXPORT:
                return ExportJob(self._cluster, place, self._parts, plan.waves)
            case Job.COMPACT:
                await self._published(WAVES - 1)
                return CompactJob(self._cluster, self._watch, self._parts)
            case job:
                files = self._files(job)
                write_files(place / "in", files)
                return ImportJob(job, self._cluster, self._watch, place / "in", files)

    def _files(self, job: Job) -> Files:
        rows = [row for partition in self._parts for row in partition]
        return cut(rows, IMPORTED_ROWS[job], job.split()[-1])

    async def _published(self, wave: int) -> None:
        """Publish all waves up to this one."""
        while self._wave <= wave:
            if not self._wave:
                await create(self._cluster, SOURCE)
            pieces = [(number, rows, wave_of(rows, self._wave)) for number, rows in enumerate(self._parts)]
            self.filled += await publish(self._cluster, SOURCE, pieces)
            self._wave += 1

    async def _nothing(self, _wave: int) -> None:
        """All of the source is published."""

    async def audited(self) -> Audited:
        """All topics, including hidden ones."""
        await self._cluster.healed()
        picture = self._directory / "audit.svg"
        partitions = {partition_topic(partition) for partition in range(PARTITIONS)}
        topics = [name for name in await self._watch.topics() if name not in partitions | {SOURCE}]
        named = [SOURCE, *topics] if self._wave else topics
        words = ["audit", *named, "--url", self._cluster.url, "--picture", str(picture)]
        code, answer = await JobProcess(words, self._directory / "audit").answer()
        found = Audited.of(answer, picture.stat().st_size)
        return found if code == 0 else replace(found, verdict=f"{found.verdict}, code {code}")


async def prove(given: Namespace, cluster: Cluster, directory: Path) -> Report:
    """Run all jobs, one after the other, then the audit; print a line at the end of each job."""
    partitions = messages_of(fetch(FLIGHTS, cache_directory()), given.lines)
    async with TopicWatch(cluster) as watch:
        proof = Proof(cluster, watch, directory, partitions)
        outcomes = [await proof.run(plan) for plan in plans(given.seed, PARTITIONS) if plan.job in given.only]
        return Report(given.seed, proof.filled, "jobs", outcomes, (await proof.audited()).besides)


def main() -> int:
    return prove_by_command(
        "jobs_proof",
        __doc__,
        prove,
        seed="how far the work is at each fault, and which owner is killed",
        thing="job",
        names=list(Job),
        why_lines_min="smaller work ends before a fault",
    )


if __name__ == "__main__":
    sys.exit(main())
