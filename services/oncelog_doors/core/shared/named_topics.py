"""Topics as a namespace lists them."""

from typing import NamedTuple


class NamedTopic(NamedTuple):
    """name: tenant/namespace/topic. partitions: 0: it is not partitioned."""

    name: str
    partitions: int = 0

    @property
    def local(self) -> str:
        """The last element of the name."""
        return self.name.rpartition("/")[2]
