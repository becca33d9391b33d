"""The order of a list that REST gives in its own: by a column that the address names.

REST pages such a list by id. So the console reads at most READ_MAX rows and orders these, and the page says how many it
has looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

#: Rows that are read to be ordered.
READ_MAX = 1_000
_Row = Mapping[str, Any]


class Order(NamedTuple):
    """key: of a row; None is behind all others. ascending: the least first, as for names; otherwise the largest."""

    key: Callable[[_Row], Any]
    ascending: bool = False


Orders = Mapping[str, Order]


def by_field(*fields: str) -> Orders:
    """The largest first."""
    return {field: Order(itemgetter(field)) for field in fields}


def arranged(rows: Sequence[_Row], orders: Orders, name: str | None) -> list[_Row]:
    """name: of an order; another one, or none: as REST has the rows. Rows that are alike stay as REST has them."""
    order = orders.get(name or "")
    if order is None:
        return list(rows)
    known = [row for row in rows if order.key(row) is not None]
    unknown = [row for row in rows if order.key(row) is None]
    return sorted(known, key=order.key, reverse=not order.ascending) + unknown
