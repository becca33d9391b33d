"""A sample of `make effects-proof`: a program is killed at named steps, and each message has one effect."""

from pathlib import Path

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.effects.effects_proof.seam_runs import SeamRuns

#: The database has decided and the program does not know, or the other way round.
SAMPLE = ("compare", "apply.function", "apply.answer")


@pytest.mark.asyncio
async def test_program_killed_at_seams_loses_and_doubles_nothing(
    cluster: Cluster, client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    runs = SeamRuns(
        cluster, tmp_path, "seams-sample", f"sqlite:///{tmp_path}/seams.db", messages=40, batch=3, pause_s=0.0
    )
    await runs.publish(client)
    for seam in SAMPLE:
        before = len(runs.seen())
        await runs.killed_at(seam, 1 if seam == "compare" else 2)
        assert seam == "compare" or len(runs.seen()) > before
    last = runs.start()
    try:
        await runs.completes(last)
    finally:
        last.end()
    runs.check()
    runs.close()
