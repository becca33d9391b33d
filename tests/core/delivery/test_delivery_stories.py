"""The rules of subscriptions, each of them a story: the files in `stories`.

`python -m tests.core.delivery.test_delivery_stories` writes what happens into them; the diff shows what has changed.
"""

from pathlib import Path

import pytest

from tests.core.delivery.story_world import StoryWorld
from tests.core.stories import rewrite, stories_in

FILES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
STORIES = {f"{path.stem}: {story.name}": story for path in FILES for story in stories_in(path.read_text())}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.hazard(*story.hazards)) for name, story in STORIES.items()]
)
def test_story(name: str) -> None:
    STORIES[name].check(lambda: StoryWorld().play)


if __name__ == "__main__":
    for each in FILES:
        rewrite(each, lambda: StoryWorld().play)
