"""What a session is told to read from or write to: plain values, for they travel as JSON."""

from typing import Any

Place = dict[str, Any]


def topic_source(url: str, topic: str, **options: str) -> Place:
    return {"format": "oncelog", "options": {"serviceUrl": url, "topic": topic, **options}, "path": None}


def file_source(kind: str, path: str, **options: str) -> Place:
    return {"format": kind, "options": options, "path": path}


def topic_sink(url: str, topic: str, mode: str, prefix: str, **options: str) -> Place:
    told = {"serviceUrl": url, "topic": topic, "mode": mode, "producerPrefix": prefix, **options}
    return {"format": "oncelog", "options": told, "path": None, "mode": "append"}


def file_sink(kind: str, path: str) -> Place:
    return {"format": kind, "options": {}, "path": path, "mode": "overwrite"}


NOOP: Place = {"format": "noop", "options": {}, "path": None, "mode": "overwrite"}
