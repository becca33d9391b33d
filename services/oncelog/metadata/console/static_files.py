"""The files that pages load: one style sheet, one module of JavaScript, one icon. Their URLs contain a hash of their
content, so that browsers keep them for ever.
"""

import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from oncelog.metadata.rest.problems import http_problem

PREFIX = "/console/static/"
_TYPES = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
_IMMUTABLE = "public, max-age=31536000, immutable"


@cache
def _content(name: str) -> tuple[bytes, str]:
    data = files("oncelog.metadata.console").joinpath("static", name).read_bytes()
    return data, hashlib.sha256(data).hexdigest()[:16]


def static_url(name: str) -> str:
    return f"{PREFIX}{_content(name)[1]}/{name}"


async def serve_static(request: Request) -> Response:
    """A URL of another version, as during an upgrade, gets the present content, and is not kept."""
    name = request.path_params["name"]
    if name not in _TYPES:
        return http_problem(404, "no such path")
    data, digest = _content(name)
    kept = _IMMUTABLE if request.path_params["digest"] == digest else "no-store"
    return Response(data, media_type=_TYPES[name], headers={"cache-control": kept})
