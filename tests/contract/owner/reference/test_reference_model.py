"""A real owner over gRPC says what the reference model says, through the same random histories."""

import os
from pathlib import Path

import pytest

from tests.contract.owner.reference.histories import run_history
from tests.contract.owner.reference.model import Verdict

pytestmark = pytest.mark.asyncio

HISTORY_STEPS = 10_000
#: `make verdicts-proof` gives more.
STEPS = int(os.environ.get("VERDICTS_STEPS", "20_000"))
SEED = int(os.environ.get("VERDICTS_SEED", "0"))


@pytest.mark.parametrize("seed", range(SEED, SEED + STEPS // HISTORY_STEPS))
async def test_owner_says_what_the_reference_model_says(tmp_path: Path, seed: int) -> None:
    """Overlaps, other batches of the same ids, renewals, expiries, takeovers: each verdict occurs in each history."""
    verdicts = await run_history(tmp_path, seed, HISTORY_STEPS)
    assert set(verdicts) == set(Verdict)
