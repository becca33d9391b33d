"""Stories: tests of a core as text, which can be read without knowing Python.

    # What the file is about. The blocks before the first heading are the beginning of each story.
    store 3; subscribe a window=10
    ----
    a: attached, generation 1; gets 0-2

    ## A sentence that says the rule (hazard name-of-a-hazard, name-of-another).
    # Why it is a rule.
    ack a 0 unwritten
    ----
    unwritten: Acked

A block ends at an empty line. Above the dashes it has commands, in lines or with semicolons between them; below them
everything that the core has done. `each TYPE: shared, failover` below a heading: the story holds for each of them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from textwrap import wrap

_DASHES = "----"
_HAZARDS = re.compile(r" \(hazard ([a-z, -]+)\)")
_EACH = re.compile(r"^each (\w+): (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """`nack a 0-2 delay_ms=5`: a name, words, and values that have names."""

    name: str
    words: tuple[str, ...] = ()
    values: dict[str, str] = field(default_factory=dict)


#: Performs the commands of one block, and returns what happened, in lines.
Player = Callable[[Sequence[Command]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Story:
    """opening: the blocks before the first heading of its file. text: from its heading on."""

    opening: str
    text: str

    @property
    def name(self) -> str:
        """The heading without its hazards and its full stop."""
        return _HAZARDS.sub("", self.text.splitlines()[0]).removeprefix("## ").removesuffix(".")

    @property
    def hazards(self) -> tuple[str, ...]:
        found = _HAZARDS.search(self.text.splitlines()[0])
        return tuple(found[1].split(", ")) if found else ()

    @property
    def variants(self) -> list[tuple[str, str]]:
        """What a word of the commands stands for: (word, value)."""
        found = _EACH.search(self.text)
        return [(found[1], value) for value in found[2].split(", ")] if found else [("", "")]

    def check(self, new_player: Callable[[], Player]) -> None:
        """Raise AssertionError, with a diff, unless all happens as the story says. new_player: it begins a story."""
        for variant in self.variants:
            before, after = self.opening + self.text, "".join(self.played(new_player(), variant))
            diff = unified_diff(before.splitlines(), after.splitlines(), "the story", "what happened", lineterm="", n=9)
            assert before == after, "\n".join([f"{self.name} {variant[1]}", *diff])

    def played(self, player: Player, variant: tuple[str, str]) -> tuple[str, str]:
        """The opening and the text with what happens below their dashes."""
        return _played(self.opening, player, variant), _played(self.text, player, variant)


def stories_in(text: str) -> list[Story]:
    """The stories of a file. Raises ValueError for two of one name."""
    opening, *texts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    found = [Story(opening, each) for each in texts]
    if len({story.name for story in found}) < len(found):
        raise ValueError("two stories have the same heading")
    return found


def stories_of(test_file: str) -> dict[str, Story]:
    """{name of its file, colon, its own name: a story} of the folder `stories` next to a test."""
    files = _files_of(test_file)
    return {f"{path.stem}: {story.name}": story for path in files for story in stories_in(path.read_text())}


def rewrite_stories_of(test_file: str, new_player: Callable[[], Player]) -> None:
    """Write what happens into the stories of the folder `stories` next to a test."""
    for path in _files_of(test_file):
        played = [story.played(new_player(), story.variants[0]) for story in stories_in(path.read_text())]
        path.write_text(played[0][0] + "".join(text for _, text in played))


def _files_of(test_file: str) -> list[Path]:
    return sorted(Path(test_file).with_name("stories").glob("*.txt"))


def _played(text: str, player: Player, variant: tuple[str, str]) -> str:
    body = text.rstrip("\n")
    return "\n\n".join(_played_block(block, player, variant) for block in body.split("\n\n")) + text[len(body) :]


def _played_block(block: str, player: Player, variant: tuple[str, str]) -> str:
    """Raises ValueError for commands without dashes."""
    above, dashes, _ = block.partition(f"\n{_DASHES}")
    lines = [line for line in above.splitlines() if not line.startswith(("#", "each "))]
    commands = [_command(each, variant) for line in lines for each in line.split(";")]
    if dashes:
        happened = [part for line in player(commands) for part in wrap(line, 120, subsequent_indent="  ")]
        return "\n".join([above, _DASHES, *happened])
    if commands:
        raise ValueError(f"no {_DASHES} below {block!r}")
    return block


def _command(text: str, variant: tuple[str, str]) -> Command:
    name, *rest = [variant[1] if word == variant[0] else word for word in text.split()]
    values = dict(word.split("=", 1) for word in rest if "=" in word)
    return Command(name, tuple(word for word in rest if "=" not in word), values)
