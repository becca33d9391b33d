"""A real owner over gRPC says what the reference model says, through the same random histories."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.owner.reference.histories import run_history
from tests.contract.owner.reference.model import Verdict

pytestmark = pytest.mark.asyncio

HISTORY_STEPS = 10_000
#: `make verdicts-proof` gives more.
STEPS = int(os.environ.get("VERDICTS_STEPS", "10_000"))
SEED = int(os.environ.get("VERDICTS_SEED", "0"))


@pytest.fixture(scope="module")
def seen() -> Iterator[set[Verdict]]:
    """The verdicts of all histories: each occurs, else they compare less than they seem to. A history of its own may
    lack a rare one."""
    verdicts: set[Verdict] = set()
    yield verdicts
    assert verdicts == set(Verdict)


@pytest.mark.parametrize("seed", range(SEED, SEED + STEPS // HISTORY_STEPS))
async def test_owner_says_what_the_reference_model_says(tmp_path: Path, seen: set[Verdict], seed: int) -> None:
    """Overlaps, other batches of the same ids, renewals, expiries, takeovers."""
    seen.update(await run_history(tmp_path, seed, HISTORY_STEPS))
