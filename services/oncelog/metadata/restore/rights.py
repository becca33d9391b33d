"""Rights after a restore that may have missed a revocation: closed until an operator confirms them.

Closed rights are kept in the policies of each namespace beside `permissions`, where no check looks at them: no grant is
effective but that of superusers. A grant that is made meanwhile is effective at once, and stays. So nothing else in the
cluster knows about closed rights (hazard revoked-right-returns), but the revocation: it also ends a closed grant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from oncelog.core.access import Permissions
from oncelog.core.names import NamespaceName
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.cluster_store import ClusterStore, Rights
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import PolicyStore

#: The field of the policies that no version before knows, and that all keep.
_CLOSED = "closed_permissions"


@dataclass(frozen=True, slots=True)
class ClosedGrant:
    """What the confirmation makes effective. now: the rights that the role has already."""

    namespace: str
    role: str
    rights: tuple[str, ...]
    now: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RightsReport:
    state: Rights
    closed: tuple[ClosedGrant, ...]


def closed(policies: Policies) -> Policies:
    """The same without effective grants."""
    if not policies.permissions:
        return policies
    kept = {**_closed_of(policies), **policies.permissions}
    noted = {role: list(rights) for role, rights in kept.items()}
    return replace(policies, permissions={}, further={**policies.further, _CLOSED: noted})


def opened(policies: Policies) -> Policies:
    """With the closed grants, but for roles that got one meanwhile."""
    if _CLOSED not in policies.further:
        return policies
    further = {name: value for name, value in policies.further.items() if name != _CLOSED}
    return replace(policies, permissions={**_closed_of(policies), **policies.permissions}, further=further)


def revoked(policies: Policies, role: str) -> Policies:
    """Without any right of the role, closed ones too: nothing but the confirmation would show that it has them."""
    permissions = {each: rights for each, rights in policies.permissions.items() if each != role}
    further = {name: value for name, value in policies.further.items() if name != _CLOSED}
    if left := {each: list(rights) for each, rights in _closed_of(policies).items() if each != role}:
        further[_CLOSED] = left
    return replace(policies, permissions=permissions, further=further)


class ClosedRights:
    """Shows and confirms the rights of a cluster."""

    def __init__(self, cluster: ClusterStore, namespaces: NamespaceStore, policies: PolicyStore) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._policies = policies

    async def report(self) -> RightsReport:
        """Raises NotFound, StoreUnavailable, CorruptEntry."""
        record = await self._cluster.require()
        found: list[ClosedGrant] = []
        for name in await self._every_namespace():
            policies = (await self._policies.read(name)).value
            found += [
                ClosedGrant(str(name), role, rights, policies.permissions.get(role, ()))
                for role, rights in sorted(_closed_of(policies).items())
            ]
        return RightsReport(record.rights, tuple(found))

    async def confirm(self) -> RightsReport:
        """Make all closed rights effective. It can be repeated. Returns what was closed, and that rights are open.
        Raises as `report`."""
        confirmed = replace(await self.report(), state=Rights.OPEN)
        for name in await self._every_namespace():
            await self._policies.change(name, opened)
        while True:
            found = await self._cluster.find()
            if found is None:
                return confirmed
            # Also if they are open: an earlier call may have opened them, and not noted it (`noting_session`).
            written = await self._cluster.write(replace(found.value, rights=Rights.OPEN), version=found.version)
            if written.status is WriteStatus.OK:
                return confirmed

    async def _every_namespace(self) -> list[NamespaceName]:
        tenants = await self._namespaces.tenants()
        return [each for tenant in tenants for each in await self._namespaces.namespaces(tenant)]


def _closed_of(policies: Policies) -> Permissions:
    """A field of another form is no grant."""
    noted = policies.further.get(_CLOSED)
    if not isinstance(noted, Mapping):
        return {}
    return {str(role): tuple(map(str, rights)) for role, rights in noted.items() if isinstance(rights, list)}
