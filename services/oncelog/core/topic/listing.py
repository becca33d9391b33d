"""What lists of topics may be asked for, and the order of such a list over all owners.

Rules
- Within a state the worst topic comes first: the one that has been in it longest, or has the largest backlog. This is
  its rank, ascending; topics of one rank are ordered by name. Another order (`ListSort`) is a rank, too.
- Partitions can be folded into their topic only in the order of names: each owner knows the sum of its own partitions
  only, so it could not tell which topics are the first ones by a figure.
- A page ends at a `ListPosition`, a rank and a name, and the next one begins behind it. So each owner is asked once for
  each page and returns no more than a page. A topic whose rank changes between two pages may be missing or listed
  twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, Self, TypeVar

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import DOORS_PREFIX, is_of_doors

#: Names of topics of which a list counts nothing.
NAMED_MAX = 10
#: A time in ms, or a number of messages; it fits into 64 bits.
_RANK_CHARACTERS_MAX = 18


class ListedState(StrEnum):
    """A topic may be in several of them."""

    #: a backlog quota holds or refuses publishing
    HELD = "held"
    #: the topic is not served: it is taken over, or something that it needs is missing
    WAITING = "waiting"
    #: a subscription gets no new messages because of its state of acknowledgements
    BLOCKED = "blocked"
    #: a subscription has messages that are not acknowledged
    BACKLOG = "backlog"
    #: the backlog of a subscription has grown for ten minutes
    GROWING = "growing"
    #: a subscription without a consumer has had messages for it for ten minutes
    UNCONSUMED = "unconsumed"
    #: it stores dead letters, some of which wait for a redrive
    DEAD_LETTERS = "dead_letters"


#: How long the oldest message of a subscription must have waited for UNCONSUMED.
UNCONSUMED_MS = 600_000


class ListSort(StrEnum):
    """By name ascending, by the others descending; what is unknown comes last."""

    NAME = "name"
    MESSAGES = "messages"
    RATE_IN = "rate_in"
    RATE_OUT = "rate_out"
    BACKLOG = "backlog"
    BYTES = "bytes"
    #: messages that were not stored since the owner took the topic over
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ListQuery:
    """state None: all topics. namespace: tenant/namespace; empty: all. name: text in the full name, in any case.
    sort None: in the order of the state; without one by name. folded: the partitions of a topic are one row.

    Raises InvalidArgument.
    """

    state: ListedState | None = None
    namespace: str = ""
    name: str = ""
    sort: ListSort | None = None
    folded: bool = False

    def __post_init__(self) -> None:
        if self.folded and self.sort not in (None, ListSort.NAME):
            raise InvalidArgument(
                f"partitions=folded cannot be sorted by {self.sort}: sort by name, or list each partition", field="sort"
            )

    def matches(self, topic: str) -> bool:
        """topic: full name; empty while its owner has not read its record: then it is in no namespace."""
        return (
            (not self.namespace or topic.startswith(f"{self.namespace}/"))
            and (not self.name or self.name.casefold() in topic.casefold())
            and (self.state is not None or not is_left_out(topic, looked_for=self.name))
        )


def is_left_out(topic: str, *, looked_for: str) -> bool:
    """Whether a list of everything leaves the topic out: it belongs to the doors, and the text of the query does not
    look for such topics. A list of topics in a state has them: their trouble is that of the doors' clients."""
    return is_of_doors(topic.rpartition("/")[2]) and DOORS_PREFIX not in looked_for


class UncountedTopics(NamedTuple):
    """Topics of which a list counts nothing. first: the first NAMED_MAX by name."""

    topics: int
    first: list[str]


class ListPosition(NamedTuple):
    """Between two topics of a list."""

    rank: int
    topic: str

    def __str__(self) -> str:
        return f"{self.rank}:{self.topic}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidArgument."""
        rank, _, topic = text.partition(":")
        if not (topic and rank.removeprefix("-").isdecimal() and len(rank) <= _RANK_CHARACTERS_MAX):
            raise InvalidArgument(f"after={text!r} is no place: use next_after of the page before", field="after")
        return cls(int(rank), topic)


class Ranked(Protocol):
    """One row of a list."""

    @property
    def place(self) -> ListPosition: ...
    @property
    def key(self) -> str:
        """What is listed once, whatever its place."""

    @property
    def owner_epoch(self) -> int: ...


RankedT = TypeVar("RankedT", bound=Ranked)


def page_of(found: Iterable[RankedT], limit: int) -> tuple[list[RankedT], ListPosition | None]:
    """The first `limit` topics of what the owners returned, and where the next page begins; None: there is none.

    found: up to `limit` + 1 topics of each owner. A topic that moves may be listed by two owners: the later one counts.
    """
    newest: dict[str, RankedT] = {}
    for each in found:
        other = newest.get(each.key)
        if other is None or other.owner_epoch < each.owner_epoch:
            newest[each.key] = each
    ordered = sorted(newest.values(), key=lambda each: each.place)
    page = ordered[:limit]
    return page, page[-1].place if len(ordered) > limit else None
