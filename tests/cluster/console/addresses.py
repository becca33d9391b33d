"""The pages of the console as a browser asks for them."""

import re
from urllib.parse import quote

from oncelog.core.names import parse_topic
from oncelog.metadata.console.pages import PAGES


def topic_page(topic: str, *more: str) -> str:
    """Path of the page of a topic; more: further parts, such as "subscriptions", NAME."""
    return "/console/topics/" + "/".join(quote(part, safe="") for part in (*str(parse_topic(topic)).split("/"), *more))


def pages(topic: str, subscription: str, producer: str = "importer") -> dict[str, str]:
    """{title: path} of every page, those of a topic, a subscription and a producer for these."""
    tenant, namespace, name = str(parse_topic(topic)).split("/")
    parts = {"tenant": tenant, "namespace": namespace, "topic": name, "subscription": subscription}
    queries = {"Producer": f"?name={quote(producer, safe='')}"}
    return {
        page.title.lower(): re.sub(r"\{(\w+)[^}]*\}", lambda part: quote(parts[part[1]], safe=""), page.path)
        + queries.get(page.title, "")
        for page in PAGES
    }
