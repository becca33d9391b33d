"""Templates to HTML. Everything that a template inserts is escaped; a name that is not there fails, and is no blank."""

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from oncelog.metadata.console import charts, plots, policies, shown
from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import rest_path
from oncelog.metadata.console.staleness import Stale, distinct_problems
from oncelog.metadata.console.static_files import static_url


@dataclass(frozen=True, slots=True)
class Rendered:
    """html: the page. fragments: {id: HTML of this block}, which a live page replaces."""

    html: str
    fragments: dict[str, str] = field(default_factory=dict)

    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(html.encode()).hexdigest()[:16] for name, html in self.fragments.items()}


_CELL = re.compile(r"<tr\b|<td\b")


def labelled(rows: Markup, columns: Sequence[str]) -> Markup:
    """Rows of a table whose cells say which column they are in: a narrow window shows each row as a list of them. Tags
    are those of templates, because all values in them are escaped."""
    # Without the arrow of the column that sorts.
    titles = [escape(Markup(column.removeprefix("#")).striptags().rstrip(" ▲▼")) for column in columns]  # noqa: S704
    at = 0

    def label(found: re.Match[str]) -> str:
        nonlocal at
        if found[0] == "<tr":
            at = 0
            return found[0]
        title = titles[at] if at < len(titles) else ""
        at += 1
        return f'<td data-label="{title}"'

    return Markup(_CELL.sub(label, rows))  # noqa: S704 - titles are escaped, and the rest is as it was


def topic_link(name: str, *more: str) -> str:
    """The page of a topic, by its full name; more: further parts of the path."""
    parts = name.split("/")
    if len(parts) != 3:  # an id, while its owner has not read the topic's record
        return rest_path("/console/topics", name=name)
    return rest_path("/console/topics/" + "/".join(["{}"] * (3 + len(more))), *parts, *more)


class Rendering:
    """The environment of all templates, and what they know of the console."""

    def __init__(self, navigation: list[Page], done: Mapping[str, str]) -> None:
        """done: {name of an action: what is told after it}."""
        self._environment = environment = Environment(
            loader=PackageLoader("oncelog.metadata.console", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=shown.visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters |= {
            "number": shown.number,
            "change": shown.change,
            "binary": shown.binary,
            "duration": shown.duration,
            "exact": shown.exact,
            "short": shown.short,
            "as_json": shown.as_json,
        }
        environment.globals |= {
            "static": static_url,
            "path": rest_path,
            "topic_link": topic_link,
            "counted": shown.counted,
            "totals": shown.totals,
            "distinct_problems": distinct_problems,
            "lines": charts.lines,
            "labelled": labelled,
            "strip_of": charts.strip,
            "ranges": plots.RANGES,
            "known_policies": policies.POLICIES,
            "source_words": policies.source_words,
            "navigation": navigation,
            "done": done,
        }

    def page(self, page: Page, view: View, context: dict[str, Any]) -> Rendered:
        fragments: dict[str, str] = {}

        def keep(name: str, html: Markup) -> Markup:
            assert name not in fragments, f"two blocks of {page.template} have the id {name}"
            fragments[name] = str(html)
            return html

        live = rest_path("/console/live", page=view.url()) if page.is_live(view) else None
        html = self.text(page.template, title=page.title, view=view, keep=keep, live=live, **context)
        return Rendered(html, fragments)

    def text(self, template: str, **context: Any) -> str:
        """The HTML of a template that is no page of the list."""
        now_ms = time.time_ns() // 1_000_000
        context = {
            "live": None,
            "now_ms": now_ms,
            "ago": lambda time_ms: shown.ago(time_ms, now_ms),
            "stale": Stale(),
            **context,
        }
        return self._environment.get_template(template).render(context)
