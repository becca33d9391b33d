"""Two HTML pages for users who open the REST port in a browser: a start page, and the list of all requests.

The pages have no scripts and load nothing from other hosts. The start page needs no token. It is the same for every
cluster and discloses nothing about this one, not even the version.
"""

from collections.abc import Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from oncelog.metadata.rest.access import anybody

DOCS = "/docs"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "body{color:#222;background:#fff}"
    "code,pre{font-family:ui-monospace,monospace;font-size:.9em;background:#f3f3f3;border-radius:3px}"
    "code{padding:0 .2em}pre{padding:.7em;overflow-x:auto}td{padding:.1em 1em .1em 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}code,pre{background:#2a2a2a}a{color:#8bf}}"
)
_WELCOME_BODY = """
<h1>Oncelog</h1>
<p>This is the REST interface of an Oncelog cluster: a replicated log in which every message takes effect once.
Clients publish and read through the SDK and the command line, on another port.</p>
<ul>
<li><a href="/docs">/docs</a>: list of all requests</li>
<li><a href="/openapi.json">/openapi.json</a>: OpenAPI 3.1 description, for programs</li>
<li><code>/livez</code>, <code>/readyz</code> and <code>/metrics</code>: health and metrics, on the health port of each
process, over plain HTTP and without a token</li>
</ul>
<p>If authentication is on, every request needs a token, also for the first two:</p>
<pre>curl -H "Authorization: Bearer $(cat token)" https://HOST:PORT/admin/v2/clusters</pre>
<p>On the command line: <code>oncelog admin --help</code>. Examples of every request are in the file
<code>docs/rest.md</code> of the source repository.</p>
"""


class Welcome:
    """Middleware that answers GET and HEAD of `/`. It runs before authentication. console: where the console is, to
    which browsers are sent; empty: there is none."""

    def __init__(self, app: ASGIApp, *, console: str = "") -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/" and scope["method"] in {"GET", "HEAD"}:
            browser = "text/html" in Headers(scope=scope).get("accept", "")
            to_console = self._console and browser and scope["server"] is not None
            answer = RedirectResponse(self._console, 303) if to_console else _page("Oncelog", _WELCOME_BODY)
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def add_docs(app: FastAPI) -> None:
    """Add the page with all requests, for every role with a valid token."""

    @app.get(DOCS, include_in_schema=False, dependencies=[anybody])
    async def docs() -> HTMLResponse:
        return _page("Oncelog: REST requests", _calls(app.openapi()))


def _calls(document: Mapping[str, Any]) -> str:
    """Method, path and summary of each request, by tag."""
    rows: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            cells = (f"<code>{method.upper()}</code>", f"<code>{escape(path)}</code>", escape(operation["summary"]))
            row = "".join(f"<td>{cell}</td>" for cell in cells)
            rows[operation["tags"][0]].append(f"<tr>{row}</tr>")
    about = {tag["name"]: tag["description"] for tag in document["tags"]}
    tables = "".join(
        f"<h2>{escape(name)}</h2>\n<p>{escape(about[name])}</p>\n<table>\n{chr(10).join(some)}\n</table>\n"
        for name, some in rows.items()
    )
    paragraphs = "".join(f"<p>{escape(text)}</p>\n" for text in document["info"]["description"].strip().split("\n\n"))
    whole = 'Parameters and bodies are described in <a href="/openapi.json">/openapi.json</a>.'
    return f"<h1>REST requests</h1>\n{paragraphs}<p>{whole}</p>\n{tables}"


def _page(title: str, body: str) -> HTMLResponse:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    page = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'
    return HTMLResponse(page, headers=_HEADERS)
