"""Login: a token is exchanged for a cookie that holds the same token.

Each request is authenticated by the token in it, so the role, the expiry, and a key that was replaced count at once,
and every replica takes it. The cookie counts only below /console/: other requests need the header, so a page of another
origin cannot make them. It ends with the browser's session.
"""

import re

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response

from oncelog.core.errors import InvalidArgument, OncelogError, Unauthenticated
from oncelog.metadata.console.forms import check_origin, fields_of
from oncelog.metadata.console.rendering import Rendering
from oncelog.metadata.rest.problems import body_of, note_code
from oncelog.runtime.security import Security

PATH = "/console/login"
LOGOUT = "/console/logout"
HOME = "/console/"
#: Browsers keep cookies of 4 KiB, with name and attributes.
TOKEN_CHARACTERS_MAX = 3_500
#: Over TLS browsers accept the first one only from this host, for all of it; the other one is for plain HTTP.
SECURE, PLAIN = "__Host-oncelog", "oncelog_console"
_TOKEN = re.compile(r"[!-+\--:<-\[\]-~]+", re.ASCII)
_NEXT = re.compile(r"/console/(?!/)[!-\[\]-~]*", re.ASCII)


def token_of(headers: Headers, *, scheme: str) -> str | None:
    """The token in the cookie. None: there is no cookie. scheme: over https only the cookie counts that no other host,
    and no page without TLS, can have set."""
    cookies = cookie_parser(headers.get("cookie", ""))
    found = cookies.get(SECURE) or ("" if scheme == "https" else cookies.get(PLAIN))
    return found if found and _TOKEN.fullmatch(found) else None


def next_of(text: str | None) -> str:
    """Where the viewer wanted to go, if that is a page of this console."""
    if text is None or _NEXT.fullmatch(text) is None or "//" in text.partition("?")[0]:
        return HOME
    return text


class Login:
    """The pages that need no login."""

    def __init__(self, security: Security, rendering: Rendering) -> None:
        self._security = security
        self._rendering = rendering

    async def show(self, request: Request) -> Response:
        """The form; with a cookie that is not valid any more, also why."""
        if self._security.authenticator is None:
            return RedirectResponse(HOME, 303)
        error = None
        token = token_of(request.headers, scheme=request.url.scheme)
        if token is not None:
            try:
                self._security.caller(f"Bearer {token}")
            except Unauthenticated as refused:
                error = refused
        return self._form(next_of(request.query_params.get("next")), error)

    async def log_in(self, request: Request) -> Response:
        """303 to the page that the viewer wanted, or the form again with the reason."""
        check_origin(request.headers, scheme=request.url.scheme)
        fields = fields_of(await request.body())
        wanted, token = next_of(fields.get("next")), fields.get("token", "").strip()
        try:
            if len(token) > TOKEN_CHARACTERS_MAX:
                message = f"the token has more than {TOKEN_CHARACTERS_MAX} characters, the maximum of a login here"
                raise InvalidArgument(message, field="token", limit=TOKEN_CHARACTERS_MAX)
            if not _TOKEN.fullmatch(token):
                raise Unauthenticated("this is not a token: paste the content of the token's file")
            self._security.caller(f"Bearer {token}")
        except OncelogError as error:
            note_code(request.scope, error.code)
            return self._form(wanted, error)
        answer = RedirectResponse(wanted, 303)
        if _over_tls(request):
            answer.set_cookie(SECURE, token, path="/", secure=True, httponly=True, samesite="strict")
        else:
            answer.set_cookie(PLAIN, token, path="/console", httponly=True, samesite="strict")
        return answer

    async def log_out(self, request: Request) -> Response:
        """Delete the cookie, whatever it holds."""
        check_origin(request.headers, scheme=request.url.scheme)
        answer = RedirectResponse(PATH, 303)
        answer.delete_cookie(SECURE, path="/", secure=True, httponly=True, samesite="strict")
        answer.delete_cookie(PLAIN, path="/console", httponly=True, samesite="strict")
        return answer

    def _form(self, wanted: str, error: OncelogError | None) -> Response:
        status = 200 if error is None else body_of(error).status
        text = None if error is None else error.message
        return HTMLResponse(self._rendering.text("login.html", title="Log in", wanted=wanted, error=text), status)


def _over_tls(request: Request) -> bool:
    """Also if a proxy speaks TLS for this process: the browser names the scheme that it sees."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
