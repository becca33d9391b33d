"""The console as part of the REST application: `Console(settings, security).install(app)`."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, unquote

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import compile_path

from oncelog.core.access import Caller
from oncelog.core.errors import Conflict, InvalidArgument, NotFound, PermissionDenied
from oncelog.metadata.console.access import ConsoleAccess
from oncelog.metadata.console.action import Action
from oncelog.metadata.console.actions import ACTIONS
from oncelog.metadata.console.forms import SEEN, TYPED, FormTokens, check_origin, csrf_of, fields_of, told, told_of
from oncelog.metadata.console.live import Hub
from oncelog.metadata.console.page import QUERY_CHARACTERS_MAX, Page, View
from oncelog.metadata.console.pages import PAGES
from oncelog.metadata.console.rendering import Rendered, Rendering
from oncelog.metadata.console.rest_reading import DEADLINE_S, FRESH_S, Asker, Problem, Reading, problem_of
from oncelog.metadata.rest.access import CallerOfRequest, anybody
from oncelog.metadata.rest.problems import note_code
from oncelog.metadata.rest.routers import add_routes, new_router
from oncelog.runtime.security import Security

LIVE = "/console/live"


class Console:
    """One of a replica. payloads False: values of messages are never shown. Close it before the REST port stops."""

    def __init__(self, security: Security, *, payloads: bool = True, streams_max: int = 100, pace: float = 1.0) -> None:
        """pace: the intervals of live pages, and the time for which an answer is shared, are multiplied by it."""
        self.reading = Reading(fresh_s=FRESH_S * pace)
        self._security = security
        self._payloads = payloads
        self._tokens = FormTokens()
        self._rendering = Rendering(
            [page for page in PAGES if page.key is not None], {action.name: action.done for action in ACTIONS}
        )
        self.hub = Hub(security, self.rendered, streams_max=streams_max, pace=pace)

    def install(self, app: FastAPI) -> None:
        """Add the routes, and the middleware; it must run outside of authentication, so install it after that."""
        router = new_router(include_in_schema=False, dependencies=[anybody])
        for page in PAGES:
            self._add(router, page)
        for action in ACTIONS:
            self._add_action(router, action)
        self._add_live(router)
        add_routes(app, router)
        app.add_middleware(ConsoleAccess, security=self._security, rendering=self._rendering)

    def close(self) -> None:
        """End the streams and the requests in progress."""
        self.hub.close()
        self.reading.close()

    def _add(self, router: APIRouter, page: Page) -> None:
        @router.get(page.path)
        async def show(request: Request, caller: CallerOfRequest) -> Response:
            return HTMLResponse((await self.rendered(page, await self._requested(request, caller))).html)

    def _add_action(self, router: APIRouter, action: Action) -> None:
        @router.get(action.path)
        async def ask(request: Request, caller: CallerOfRequest) -> Response:
            view = await self._requested(request, caller)
            action.check(view)
            return await self._confirmation(action, view)

        @router.post(action.path)
        async def act(request: Request, caller: CallerOfRequest) -> Response:
            check_origin(request.headers, scheme=request.url.scheme)
            view = await self._requested(request, caller)
            fields = fields_of(await request.body())
            action.check(view)
            try:
                token = self._tokens.check(fields, view.asker.authorization, view.url())
            except PermissionDenied as error:
                note_code(request.scope, error.code)
                return await self._confirmation(action, view, Problem(403, error.code, error.message))
            typed = action.typed(view)
            if typed is not None and fields.get(TYPED, "").strip() != typed:
                text = f"nothing was done: type {typed} to confirm"
                return await self._confirmation(action, view, Problem(422, "invalid_argument", text))
            try:
                self._tokens.take(token)
            except Conflict as error:
                return await self._confirmation(action, view, Problem(409, error.code, error.message))
            refused = await _moved(action, view, fields.get(SEEN, ""))
            if refused is not None:
                return await self._confirmation(action, view, refused)
            return await self._done(action, view)

    async def _done(self, action: Action, view: View) -> Response:
        """Make the request. Its problem is shown on the page that asked; its figures, if it answers some, on a page."""
        change, back = action.change(view), action.back(view)
        answer = await view.asker.ask(change.method, change.target, change.body)
        refused = problem_of(answer)
        if refused is not None:
            return await self._confirmation(action, view, refused)
        if answer.status == 204 or not action.shows_answer:
            done = told_of(view.asker.authorization, action.name)
            return RedirectResponse(f"{back}{'&' if '?' in back else '?'}done={done}", 303)
        result = json.loads(answer.body)
        html = self._rendering.text(
            "result.html", view=view, title=action.title, told=action.done, back=back, result=result
        )
        return HTMLResponse(html)

    async def _confirmation(self, action: Action, view: View, refused: Problem | None = None) -> Response:
        """The page that asks. refused: why the action was not done."""
        change, context = action.change(view), await action.collect(view)
        seen = None if action.seen is None else action.seen(context)
        html = self._rendering.text(
            action.template,
            **context,
            seen="" if isinstance(seen, Problem) else None if seen is None else json.dumps(seen),
            action=action,
            back=action.back(view),
            command=view.asker.curl(change.target, change.method, change.body),
            refused=refused,
            title=action.title,
            typed=action.typed(view),
            view=view,
        )
        return HTMLResponse(html, 200 if refused is None else refused.status)

    def _add_live(self, router: APIRouter) -> None:
        """page: the path and query of a page, as in its URL."""
        forms = [(compile_path(page.path)[0], page) for page in PAGES if page.interval_s is not None]

        @router.get(LIVE)
        async def live(request: Request, caller: CallerOfRequest) -> Response:
            path, _, query = request.query_params.get("page", "").partition("?")
            found = ((form.match(unquote(path)), page) for form, page in forms)
            match, page = next(((match, page) for match, page in found if match), (None, None))
            if match is None or page is None:
                raise NotFound("no live page has this path: reload the page", field="page")
            view = await self._view(request, caller, path, match.groupdict(), query)
            if not page.is_live(view):
                raise NotFound("this page is not live", field="page")
            return self.hub.open(page, view)

    async def rendered(self, page: Page, view: View) -> Rendered:
        """Raises what the page raises about its path and its query; a call that fails is shown in its block."""
        timed = replace(view, until_s=asyncio.get_running_loop().time() + DEADLINE_S)
        return self._rendering.page(page, timed, await page.collect(timed))

    async def _requested(self, request: Request, caller: Caller) -> View:
        path = request.scope["raw_path"].decode("ascii").partition("?")[0]
        return await self._view(request, caller, path, request.path_params, request.url.query)

    async def _view(self, request: Request, caller: Caller, path: str, parts: Mapping[str, object], query: str) -> View:
        if len(query) > QUERY_CHARACTERS_MAX:
            message = f"the query has more than {QUERY_CHARACTERS_MAX} characters, the maximum"
            raise InvalidArgument(message, field="query", limit=QUERY_CHARACTERS_MAX)
        authorization = request.headers.get("authorization", "") if self._security.authenticator else ""
        peer = "" if request.client is None else request.client.host
        base = f"{request.url.scheme}://{request.headers.get('host', '')}"
        asker = Asker(request.app, caller, authorization, peer, base)
        query_of = dict(parse_qsl(query))
        return View(
            path=path,
            parts={name: str(value) for name, value in parts.items()},
            query=query_of,
            asker=asker,
            reading=self.reading,
            me=await self.reading.get(asker, "/admin/v2/me"),
            csrf=csrf_of(authorization),
            payloads=self._payloads,
            told=told(authorization, query_of.get("done", "")),
        )


async def _moved(action: Action, view: View, carried: str) -> Problem | None:
    """Why the action is not done, by the figures that its form carries. None: it is done."""
    if action.seen is None:
        return None
    now = action.seen(await action.collect(view))
    if isinstance(now, Problem):
        return Problem(now.status or 503, now.code, f"nothing was done: {now.detail}")
    try:
        seen = json.loads(carried)
    except (ValueError, RecursionError):  # its page knew no figures, or the viewer has changed them
        seen = None
    alike = isinstance(seen, list) and [type(each) for each in seen] == [type(each) for each in now]
    if alike and not action.moved(seen, now):
        return None
    text = (
        "nothing was done: what this form would change is not any more as its page showed it, perhaps because the form "
        "was sent before; look at the figures of now, and confirm again if you still want it"
    )
    return Problem(409, "conflict", text)
