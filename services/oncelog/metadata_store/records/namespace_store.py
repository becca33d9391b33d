"""Tenants and namespaces: created explicitly, never by use.

A namespace exists if the node of its policies exists. The folder of its topic names is created with it in one
transaction, so that topics can be created exactly in existing namespaces. So if both are missing, the namespace was
deleted, or never was; if only the policies are, they were lost. The same holds for a tenant.
"""

from oncelog.core.errors import Conflict, NamespaceNotFound, NotFound
from oncelog.core.names import DEFAULT_TENANT, NamespaceName
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import CreateStep, DeleteStep, Step, StoreSession

#: Topics that the error of a deletion names.
_NAMED_MAX = 5


class NamespaceStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def create_tenant(self, tenant: str) -> bool:
        """True: created. False: it existed, or the reply to our own creation was lost."""
        path, folder = paths.tenant_policies(tenant), paths.tenant_names(tenant)
        created = await self._create(path, folder, tenant_steps(tenant))
        while created is None:  # its record was lost, which has no content
            created = await self._create(path, folder, [CreateStep(path)])
        return created

    async def delete_tenant(self, tenant: str) -> None:
        """Delete a tenant without namespaces, whichever process does it.

        Raises NotFound if there was none at first, and Conflict while it has namespaces, and for the default tenant.
        """
        if tenant == DEFAULT_TENANT:
            raise Conflict(f"tenant {tenant} cannot be deleted: short topic names belong to it", field="tenant")
        try:
            await self.namespaces(tenant)
        except NotFound:
            await self._note_missing_tenant(tenant)
            raise
        while (node := await self._session.read(paths.tenant_policies(tenant))) is not None:
            folder = await self._session.read(paths.tenant_names(tenant))
            if folder is None:
                continue  # another deletion was faster
            steps: list[Step] = [
                DeleteStep(paths.tenant_names(tenant), folder.version),
                DeleteStep(paths.tenant_policies(tenant), node.version),
            ]
            if await self._session.transact(steps) is WriteStatus.OK:
                return
            if await self._holds_namespaces(tenant):
                raise Conflict(f"tenant {tenant} is not empty: delete its namespaces first", field="tenant")
        await self._note_missing_tenant(tenant)  # another process has deleted it

    async def _note_missing_tenant(self, tenant: str) -> None:
        if await self._session.read(paths.tenant_names(tenant)) is None:
            await self._session.note([paths.tenant_policies(tenant)], deleted=True)

    async def _holds_namespaces(self, tenant: str) -> bool:
        try:
            return bool(await self._session.children(paths.tenant_policies(tenant)))
        except NotFound:
            return False

    async def create_namespace(self, name: NamespaceName, policies: Policies | None = None) -> bool:
        """True: created. False: it existed, with its own policies. Raises NotFound if the tenant is missing,
        NamespaceNotFound if its policies were lost."""
        try:
            steps = namespace_steps(name, policies or Policies())
            created = await self._create(paths.namespace_policies(name), paths.namespace_names(name), steps)
        except NotFound as error:
            await self._note_missing_tenant(name.tenant)
            raise NotFound(f"there is no tenant {name.tenant}: create it", tenant=name.tenant) from error
        if created is None:
            raise await missing_namespace(self._session, name)
        return created

    async def exists(self, name: NamespaceName) -> bool:
        return await self._session.read(paths.namespace_policies(name)) is not None

    async def delete_namespace(self, name: NamespaceName) -> None:
        """Delete an empty namespace, whichever process does it.

        Raises NamespaceNotFound if there was none at first, Conflict while it holds topics, or partitions that are
        being deleted.
        """
        if not await self.exists(name):
            await note_missing_namespace(self._session, name)
            raise await missing_namespace(self._session, name)
        while (node := await self._session.read(paths.namespace_policies(name))) is not None:
            folder = await self._session.read(paths.namespace_names(name))
            if folder is None:
                continue  # another deletion was faster
            steps: list[Step] = [
                DeleteStep(paths.namespace_names(name), folder.version),
                DeleteStep(paths.namespace_policies(name), node.version),
            ]
            if await self._session.transact(steps) is WriteStatus.OK:
                return
            if names := await self._names_in(name):
                # By name: lists leave out the topics of the doors.
                few = ", ".join(sorted(names)[:_NAMED_MAX]) + (", …" if len(names) > _NAMED_MAX else "")
                message = f"namespace {name} is not empty: delete its topics first: {few}"
                raise Conflict(message, namespace=str(name))
        await note_missing_namespace(self._session, name)  # another process has deleted it

    async def _names_in(self, name: NamespaceName) -> list[str]:
        try:
            return await self._session.children(paths.namespace_names(name))
        except NotFound:
            return []

    async def tenants(self) -> list[str]:
        return await self._session.children(paths.NAMESPACES)

    async def namespaces(self, tenant: str) -> list[NamespaceName]:
        """Raises NotFound when there is no such tenant."""
        try:
            names = await self._session.children(paths.tenant_policies(tenant))
        except NotFound as error:
            raise NotFound(f"there is no tenant {tenant}", tenant=tenant) from error
        return [NamespaceName(tenant, name) for name in names]

    async def _create(self, path: str, folder: str, steps: list[Step]) -> bool | None:
        """Retry until it exists, whichever process created it. None: it was lost, and only its folder exists."""
        while True:
            status = await self._session.transact(steps)
            if status is WriteStatus.OK:
                return True
            if await self._session.read(path) is not None:
                return False
            if await self._session.read(folder) is not None and await self._session.read(path) is None:
                return None


def tenant_steps(tenant: str) -> list[Step]:
    return [CreateStep(paths.tenant_policies(tenant)), CreateStep(paths.tenant_names(tenant))]


def namespace_steps(name: NamespaceName, policies: Policies) -> list[Step]:
    return [
        CreateStep(paths.namespace_policies(name), encode_policies(policies)),
        CreateStep(paths.namespace_names(name)),
    ]


async def note_missing_namespace(session: StoreSession, name: NamespaceName) -> None:
    """Before a change is answered with NamespaceNotFound: return when the deletion is noted."""
    if await session.read(paths.namespace_names(name)) is None:
        await session.note([paths.namespace_policies(name)], deleted=True)


async def missing_namespace(session: StoreSession, name: NamespaceName) -> NamespaceNotFound:
    """What to say of a namespace without policies. Its folder of names is deleted together with them, so if the folder
    is there, the policies were lost."""
    if await session.read(paths.namespace_names(name)) is None:
        return NamespaceNotFound(f"there is no namespace {name}: create it", namespace=str(name))
    return NamespaceNotFound(
        f"the policies of namespace {name} are missing in ZooKeeper, and its names are there: write them anew by "
        f"`oncelog admin backup rebuild {paths.namespace_policies(name)}`",
        namespace=str(name),
    )
