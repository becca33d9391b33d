"""Paths of this cluster's REST."""

from urllib.parse import quote

_ADMIN = "/admin/v2"


def path(*parts: str) -> str:
    """Of REST, below /admin/v2. Each part may have any characters."""
    return below(_ADMIN, *parts)


def below(at: str, *parts: str) -> str:
    """Of REST, below another path."""
    return "/".join([at, *(quote(part, safe="") for part in parts)])


def topic_path(full_name: str) -> str:
    """Of REST. full_name: tenant/namespace/topic."""
    return path("persistent", *full_name.split("/"))


def lookup_path(topic: str) -> str:
    """Of the look-up of the topic with this path."""
    return topic.replace(_ADMIN, "/lookup/v2/topic", 1)
