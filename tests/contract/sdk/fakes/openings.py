"""Each call of a client that opens something."""

from collections.abc import Callable
from typing import Any

from oncelog.client.client import AsyncClient
from oncelog.client.opening import Opening

OPENINGS: dict[str, Callable[[AsyncClient], Opening[Any]]] = {
    "create_producer": lambda client: client.create_producer("flights"),
    "create_reader": lambda client: client.create_reader("flights"),
    "subscribe": lambda client: client.subscribe("flights", subscription="s"),
    "search": lambda client: client.search("flights"),
}
