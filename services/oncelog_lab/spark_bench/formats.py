"""Sources and sinks for a Spark session, as JSON values."""

from typing import Any

Dataset = dict[str, Any]


def topic_source(url: str, topic: str, **options: str) -> Dataset:
    return {"format": "oncelog", "options": {"serviceUrl": url, "topic": topic, **options}, "path": None}


def file_source(kind: str, path: str, **options: str) -> Dataset:
    return {"format": kind, "options": options, "path": path}


def topic_sink(url: str, topic: str, mode: str, prefix: str, **options: str) -> Dataset:
    own = {"serviceUrl": url, "topic": topic, "mode": mode, "producerPrefix": prefix, **options}
    return {"format": "oncelog", "options": own, "path": None, "mode": "append"}


def file_sink(kind: str, path: str) -> Dataset:
    return {"format": kind, "options": {}, "path": path, "mode": "overwrite"}


NOOP: Dataset = {"format": "noop", "options": {}, "path": None, "mode": "overwrite"}
