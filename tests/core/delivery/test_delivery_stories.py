"""The rules of subscriptions, each of them a story: the files in `stories`.

`python -m tests.core.delivery.test_delivery_stories` writes what happens into them; the diff shows what has changed.
"""

import pytest

from tests.core.delivery.story_world import StoryWorld
from tests.stories.story import Player, rewrite_stories_of, stories_of

STORIES = stories_of(__file__)


def new_player() -> Player:
    return StoryWorld().play


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.hazard(*story.hazards)) for name, story in STORIES.items()]
)
def test_story(name: str) -> None:
    """The world does what the story says, and nothing else."""
    STORIES[name].check(new_player)


if __name__ == "__main__":
    rewrite_stories_of(__file__, new_player)
