"""Routes for the rights of roles in a namespace. Rights are part of the namespace's policies."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Response

from oncelog.core.access import Right
from oncelog.core.errors import Conflict
from oncelog.core.names import check_part
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.conditions import IfMatch, answers_tag, show_tag, tags_of
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import NamespacePath
from oncelog.metadata.restore.rights import revoked
from oncelog.metadata_store.records.policies import Policies

#: All rights are in one record, which has at most 64 KiB: with long names of roles that is the lower limit.
ROLES_MAX = 1_000

_Role = Annotated[str, Path(description="Role name, the `sub` of its tokens: 1 to 255 of A-Z a-z 0-9 _ - = : .")]
Rights = Annotated[list[Right], Body(min_length=1, description='One or more of "admin", "produce" and "consume".')]


async def _role(role: _Role) -> str:
    return check_part(role, field="role")


RolePath = Annotated[str, Depends(_role)]


def routes(coordination: Coordination) -> APIRouter:
    """Show, grant and revoke rights; requires the right `admin` in the namespace."""
    router = new_router(
        prefix="/admin/v2/namespaces/{tenant}/{namespace}/permissions",
        tags=["namespaces"],
        dependencies=[requires(Right.ADMIN)],
    )

    @router.get("", summary="Show the rights of all roles", operation_id="get_permissions", responses=answers_tag(200))
    async def get_permissions(namespace: NamespacePath, response: Response) -> dict[str, list[str]]:
        """{role: its rights}. Superusers need no rights and are not listed."""
        stored = await coordination.policies.read(namespace)
        show_tag(response, stored)
        return {role: list(rights) for role, rights in sorted(stored.value.permissions.items())}

    changed: dict[str, Any] = {"status_code": 204, "responses": answers_tag(204)}

    @router.post("/{role}", summary="Grant rights to a role", operation_id="grant_permissions", **changed)
    async def grant_permissions(
        namespace: NamespacePath, role: RolePath, rights: Rights, response: Response, if_match: IfMatch = None
    ) -> None:
        """Replaces the rights that the role has in the namespace."""
        granting = _granting(role, tuple(right.value for right in dict.fromkeys(rights)))
        show_tag(response, await coordination.policies.change(namespace, granting, tags=tags_of(if_match)))

    @router.delete("/{role}", summary="Revoke all rights of a role", operation_id="revoke_permissions", **changed)
    async def revoke_permissions(
        namespace: NamespacePath, role: RolePath, response: Response, if_match: IfMatch = None
    ) -> None:
        """The role can open no new producers and readers; open ones end with their connection."""
        change = partial(revoked, role=role)
        show_tag(response, await coordination.policies.change(namespace, change, tags=tags_of(if_match)))

    return router


def _granting(role: str, rights: tuple[str, ...]) -> Callable[[Policies], Policies]:
    def change(policies: Policies) -> Policies:
        permissions = {name: granted for name, granted in policies.permissions.items() if name != role}
        if len(permissions) >= ROLES_MAX:
            raise Conflict(
                f"the namespace has rights for {ROLES_MAX} roles, the maximum: revoke those of another role first",
                limit=ROLES_MAX,
            )
        return replace(policies, permissions=permissions | {role: rights})

    return change
