"""Stories as text: all that happens is compared with what stands below the dashes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.stories.story import Command, rewrite_stories_of, stories_in, stories_of

TEXT = """\
# A counter that says by how much it grows.
add 1
----
grows by 1

## It adds (hazard one-hazard, another-hazard).
# Also nothing.
each WORD: 2, 02
add 0; add WORD times=3
----
grows by 6

add 0
----

## It adds again.
add 3
----
grows by 3
"""


def play(commands: Sequence[Command]) -> list[str]:
    added = (int(command.words[0]) * int(command.values.get("times", 1)) for command in commands)
    return [f"grows by {number}" for number in added if number]


def check(text: str) -> None:
    for story in stories_in(text):
        story.check(lambda: play)


def test_story_holds_while_all_happens_as_it_says() -> None:
    check(TEXT)
    assert [(story.name, story.hazards) for story in stories_in(TEXT)] == [
        ("It adds", ("one-hazard", "another-hazard")),
        ("It adds again", ()),
    ]


@pytest.mark.parametrize(
    ("wrong", "difference"),
    [
        (TEXT.replace("by 6", "by 7"), "-grows by 7\n+grows by 6"),
        (TEXT.replace("by 6\n", "by 6\nand more\n"), "-and more"),
        (TEXT.replace("by 1\n", ""), "+grows by 1"),
        (TEXT.replace("add 0\n", "add 1\n"), "+grows by 1"),
        (TEXT.replace("2, 02", "2, 3"), "-grows by 6\n+grows by 9"),
    ],
    ids=["another effect", "one too many", "one in the opening", "where nothing is expected", "in one variant"],
)
def test_story_fails_with_its_heading_and_a_diff(wrong: str, difference: str) -> None:
    with pytest.raises(AssertionError, match="It adds") as failed:
        check(wrong)
    assert difference in str(failed.value)


def test_files_are_rewritten_with_what_happens(tmp_path: Path) -> None:
    """Commands, comments and empty lines stay."""
    (tmp_path / "stories").mkdir()
    path = tmp_path / "stories/counter.txt"
    path.write_text(TEXT.replace("by 1", "by 5").replace("grows by 6\n", "").replace("by 3", "by 4\nby 5"))
    test_file = str(tmp_path / "test_counter_stories.py")
    rewrite_stories_of(test_file, lambda: play)
    assert path.read_text() == TEXT
    assert list(stories_of(test_file)) == ["counter: It adds", "counter: It adds again"]


@pytest.mark.parametrize(
    "text", ["## It adds.\nadd 1\n\nadd 2\n----\n", "## It adds.\n\n## It adds (hazard one-hazard).\n"]
)
def test_text_that_is_no_story_is_refused(text: str) -> None:
    """Commands without dashes would be compared with nothing; two stories of one name could not be distinguished."""
    with pytest.raises(ValueError, match=r"no ----|same heading"):
        check(text)
