"""What is rebuilt when ZooKeeper's records are lost, each rule a story: the files in `stories`.

`python -m tests.core.rebuild.test_rebuild_stories` writes what happens into them; the diff shows what has changed.
"""

from collections.abc import Sequence

import pytest

from oncelog.core.ids import LedgerId
from oncelog.core.rebuild.evidence import Evidence
from tests.core.rebuild.join_world import JoinWorld
from tests.core.rebuild.plan_world import PlanWorld
from tests.stories.story import Command, Player, rewrite_stories_of, stories_of

STORIES = stories_of(__file__)


def new_player() -> Player:
    """Of the records that are rebuilt, and of the steps of a restore."""
    worlds = (JoinWorld(), PlanWorld())
    does = {name: getattr(world, name) for world in worlds for name in dir(world) if name.startswith("do_")}

    def play(commands: Sequence[Command]) -> list[str]:
        for command in commands:
            does[f"do_{command.name}"](*command.words, **command.values)
        happened = [line for world in worlds for line in world.happened]
        for world in worlds:
            world.happened.clear()
        return happened

    return play


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.hazard(*story.hazards)) for name, story in STORIES.items()]
)
def test_story(name: str) -> None:
    """The world does what the story says, and nothing else."""
    STORIES[name].check(new_player)


def test_each_ledger_is_looked_at_a_few_times_however_many_gaps_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of 50,000 ledgers has thousands of gaps if most storage nodes are lost."""
    looks = [0]
    size_bytes = Evidence.size_bytes

    def counted(evidence: Evidence, ledger_id: LedgerId) -> int:
        looks[0] += 1
        return size_bytes(evidence, ledger_id)

    monkeypatch.setattr(Evidence, "size_bytes", counted)
    world, ledgers = JoinWorld(), [each for each in range(2, 402) if each % 10]
    for each in ledgers:
        world.do_ledger(str(each), former=f"{each - 1}:4", a="0-4")
    world.do_rebuild(absent="bc", by="ops")
    gaps = [line for line in world.happened if line.startswith("  GAP")]
    assert len(gaps) == 41, "the first one is missing, too"
    assert "; before 2-399: 359 ledgers, 17950 bytes" in gaps[0]
    assert looks[0] < 4 * len(ledgers)


if __name__ == "__main__":
    rewrite_stories_of(__file__, new_player)
