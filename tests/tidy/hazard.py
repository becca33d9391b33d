"""What a hazard is."""

from typing import NamedTuple


class Hazard(NamedTuple):
    history: str
    rule: str
