"""By hand (`make copier-proof`): both copiers of the recipes, killed a hundred times at random moments."""

import os
from collections.abc import Awaitable, Callable

import pytest

import oncelog
from tests.cluster.recipes.copier_runs import copy_through_kills
from tests.cluster.recipes.recipe_programs import Programs, Watched

pytestmark = pytest.mark.asyncio

KILLS = int(os.environ.get("COPIER_KILLS", "100"))
SEED = int(os.environ.get("COPIER_SEED", "1"))


@pytest.mark.parametrize("program", ["copier.py", "copier_by_name.py"])
async def test_target_has_each_input_once_in_order(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], client: oncelog.AsyncClient, program: str
) -> None:
    source, target = f"{program}-source", f"{program}-target"
    producer = await client.create_producer(source, producer_name="source")
    topic = await watched(target)
    inputs = await copy_through_kills(
        programs, producer, topic, lambda saved: programs.start(program, source, target, saved), KILLS, SEED
    )
    assert topic.values == inputs
