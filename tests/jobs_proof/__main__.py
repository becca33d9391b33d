"""`python -m tests.jobs_proof [--seed N] [--lines N] [--only JOB …] [-o json]`: jobs of the command line under kills.

`oncelog pipeline export`, `import` and `compact` are started as from a user's shell, and killed with SIGKILL, with Java
and all workers, each time when their visible results show a planned stage; topic owners are killed meanwhile. The jobs
are restarted until they end. The exit code is 0 when their results equal those of one process of plain Python, each
message once, one more run adds nothing, every planned kill was made, and an audit of all topics is good.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from oncelog_lab.demo.flights import FLIGHTS, cache_directory, fetch
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.until import until
from tests.jobs_proof.inputs import SOURCE, WAVES, Files, cut, messages_of, partition_topic, publish_wave, write_files
from tests.jobs_proof.job_run import JOB_S, JobRun, Outcome
from tests.jobs_proof.jobs import CompactJob, ExportJob, ImportJob, ProvenJob
from tests.jobs_proof.plan import Job, JobPlan, plans
from tests.jobs_proof.process import JobProcess
from tests.jobs_proof.report import Audited, as_json, as_table, proven
from tests.jobs_proof.watching import TopicWatch
from tests.proofs.arguments import proof_arguments, proof_directory
from tests.spark_proof.flights import PARTITIONS, Row
from tests.spark_proof.source_topic import Filled

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
        self.filled = Filled(0, 0)

    async def run(self, plan: JobPlan) -> Outcome:
        place = self._directory / plan.job.replace(" ", "-")
        own = await self._job(plan, place)
        publish = self._published if plan.job is Job.EXPORT else self._nothing
        outcome = await JobRun(plan, own, self._cluster, place, publish).run()
        injected = sum(outcome.hits.values())
        print(f"{plan.job}: {injected} kills, {outcome.checked.verdict}, {outcome.seconds:.0f} s", file=sys.stderr)
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
            filled = await publish_wave(self._cluster, self._parts, self._wave)
            self.filled = Filled(self.filled.sent + filled.sent, self.filled.refused + filled.refused)
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
        process = JobProcess(words, self._directory / "audit")
        try:
            await until(lambda: process.code is not None, JOB_S, waiting_for=f"the audit: see {process.log}")
            assert process.code in {0, 1}, process.log.read_text()[-3000:]
            found = Audited.of(process.answer, picture.stat().st_size)
            return found if process.code == 0 else replace(found, verdict=f"{found.verdict}, code {process.code}")
        finally:
            process.end()


async def prove(
    cluster: Cluster, directory: Path, chosen: list[JobPlan], lines: int
) -> tuple[Filled, list[Outcome], Audited]:
    """Run all jobs, one after the other, then the audit; print a line at the end of each job."""
    partitions = messages_of(fetch(FLIGHTS, cache_directory()), lines)
    async with TopicWatch(cluster) as watch:
        proof = Proof(cluster, watch, directory, partitions)
        outcomes = [await proof.run(plan) for plan in chosen]
        return proof.filled, outcomes, await proof.audited()


def main() -> int:
    arguments = proof_arguments(
        "python -m tests.jobs_proof",
        __doc__,
        seed="how far the work is at each fault, and which owner is killed",
        thing="job",
        names=list(Job),
        why_lines_min="smaller work ends before a fault",
    )
    chosen = [plan for plan in plans(arguments.seed, PARTITIONS) if plan.job in arguments.only]
    with ExitStack() as stack:
        directory = proof_directory(stack, arguments.directory, "jobs-proof-")
        cluster = stack.enter_context(Cluster.running(directory, ledger_entries_max=16))
        filled, outcomes, audited = asyncio.run(prove(cluster, directory, chosen, arguments.lines))
    told = (arguments.seed, filled, outcomes, audited)
    print(json.dumps(as_json(*told)) if arguments.output == "json" else as_table(*told))
    return 0 if proven(outcomes, audited) else 1


if __name__ == "__main__":
    sys.exit(main())
