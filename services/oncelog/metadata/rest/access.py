"""Authentication and authorization of REST requests. Every request is authenticated; then the rule of its route
applies.

    router = new_router(dependencies=[requires(Right.ADMIN)])                  # a rule for all routes of a router
    @router.post(path, dependencies=[requires(Right.PRODUCE, Right.ADMIN)])    # for one route: any of these rights
    async def handler(..., caller: CallerOfRequest): ...                       # a handler that checks by itself

A rule with rights needs {tenant} and {namespace} in the path. `anybody` allows every role with a valid token,
`for_backups` those of a setting. A route without a rule is for superusers only, so that a forgotten rule denies access.
"""

from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from oncelog.core.access import Caller, Right, require_superuser
from oncelog.core.errors import OncelogError
from oncelog.core.names import NamespaceName, check_part
from oncelog.metadata.rest.problems import problem
from oncelog.metadata.restore.record_copies import RecordCopies
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.runtime.security import Security

_CALLER = "oncelog_caller"


class Authentication:
    """Rejects requests without a valid token before their body is read; without authentication, those that a page of
    another origin may have sent."""

    def __init__(self, app: ASGIApp, *, security: Security) -> None:
        self._app = app
        self._security = security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers, open_to = Headers(scope=scope), self._security.open_to
            try:
                if open_to is not None and scope["server"] is not None:  # None: it did not come over HTTP
                    open_to.check(scope["method"], headers.get)
                scope[_CALLER] = self._security.caller(headers.get("authorization"))
            except OncelogError as error:
                await problem(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def caller_in(scope: Scope) -> Caller | None:
    """The authenticated caller of a request; None: there is none (yet)."""
    return scope.get(_CALLER)


def caller_of(request: Request) -> Caller:
    """The authenticated caller of a request."""
    caller: Caller = request.scope[_CALLER]
    return caller


class Rule:
    """The rule of a route. rights: the caller needs any one of them; none: every role may call."""

    def __init__(self, *rights: Right) -> None:
        self._rights = rights

    async def __call__(self, request: Request) -> None:
        caller = caller_of(request)
        if caller.superuser or not self._rights:
            return
        path = request.path_params
        namespace = NamespaceName(
            check_part(path["tenant"], field="tenant"), check_part(path["namespace"], field="namespace")
        )
        policies: PolicyStore = request.app.state.policies()
        await policies.require(caller, namespace, *self._rights)


class BackupRule(Rule):
    """For roles that copy ZooKeeper's records, and may do nothing else."""

    async def __call__(self, request: Request) -> None:
        caller = caller_of(request)
        copies: RecordCopies = request.app.state.copies()
        if caller.role not in copies.settings.roles:
            require_superuser(caller)


async def default_rule(request: Request) -> None:
    """Applies to every route: a route without its own rule is for superusers."""
    rules = getattr(request.scope.get("route"), "dependencies", ())
    if not any(isinstance(each.dependency, Rule) for each in rules):
        require_superuser(caller_of(request))


def requires(*rights: Right) -> Any:
    """A dependency for routes and routers: the caller needs any of these rights in the namespace of the path."""
    assert rights, "use `anybody` for a rule without rights"
    return Depends(Rule(*rights))


#: A dependency: allows the roles of the setting `backup_roles`.
for_backups: Any = Depends(BackupRule())
#: A dependency: allows every role with a valid token.
anybody: Any = Depends(Rule())
CallerOfRequest = Annotated[Caller, Depends(caller_of)]
