"""What a proof consists of: histories that are played on both sides, and clients with which they can be."""

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A client library that may be installed here. command: the program with it; empty if it cannot run, and missing
    says why."""

    name: str
    command: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """What happens, in one function for both sides. It says what came of it, and nothing about which side is right.

    defect: its numbers among the defects of the other system. play: gets the `Scene` of the system, and returns what
    `str` shows. left, right: the outcomes under the rule of that system and here, word by word. clients: in which it
    can happen; empty: in all.
    """

    defect: str
    title: str
    play: Callable[[Any], Awaitable[object]]
    left: str
    right: str
    clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """Of one system whose clients publish here.

    protocol: the option of `oncelog-doors serve`, and the first word of the command. scene: the `Scene` of its
    histories. left_door: the module that runs the left door. left_deduplication: whether its log knows what is sent
    again by the left door itself. left_out: {defects: why no history shows them}.
    add_options: of clients. kinds: from the parsed options.
    """

    system: str
    protocol: str
    help: str
    description: str
    epilog: str
    histories: Sequence[History]
    left_out: Mapping[str, str]
    clients: tuple[str, ...]
    scene: type[Any]
    left_door: str
    left_deduplication: bool
    kinds: Callable[[argparse.Namespace], list[ClientKind]]
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _parser: None

    @property
    def defects(self) -> list[str]:
        return sorted({each for history in self.histories for each in history.defect.split()})
