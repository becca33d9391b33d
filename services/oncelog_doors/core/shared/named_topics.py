"""Topics as a namespace lists them, and those that doors have for themselves."""

from typing import NamedTuple

#: Of topics that belong to doors, as the one with the schemas of a namespace.
OWN_PREFIX = "__oncelog_"


class NamedTopic(NamedTuple):
    """name: tenant/namespace/topic. partitions: 0: it is not partitioned."""

    name: str
    partitions: int = 0

    @property
    def local(self) -> str:
        """The last element of the name."""
        return self.name.rpartition("/")[2]


def is_own(local: str) -> bool:
    """Whether a topic with this last element belongs to doors: clients neither see nor use it."""
    return local.startswith(OWN_PREFIX)
