"""`oncelog admin apply`: make a cluster have what a file names.

Rules
- What the file does not name stays as it is; nothing is deleted. Of a role that is named, the rights become those of
  the file.
- The cluster is read first, and only differences are written, one REST request each. So a repeated run changes nothing,
  and a run after a failure makes the changes that are left.
- What cannot be done is found before the first change where reading can tell: a parent that does not exist, another
  number of partitions.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from oncelog.cli.admin.commands import Report, admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.provisioning_file import POLICIES, FilePosition, Wanted, WantedNamespace, WantedTopic, read_file
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import ROOT, cluster_path, namespace_path, permissions_path, tenant_path, topic_path
from oncelog.cli.admin.waiting import progress, waited
from oncelog.core.errors import NotFound, OncelogError


@dataclass(frozen=True, slots=True)
class Change:
    """One REST request. what: the object, as users name it; field: what is set on it, empty if it is created.
    before, after: values in REST's form, None if not set. place: where the file wants it.
    """

    what: str
    field: str
    before: Answer
    after: Answer
    method: str
    path: str
    body: Answer
    place: FilePosition

    def __str__(self) -> str:
        if not self.field:
            return f"+ {self.what}" + ("" if self.body is None else f", {self.body} partitions")
        return f"~ {self.what} {self.field}: {_text(self.before)} -> {_text(self.after)}"

    def shown(self) -> dict[str, object]:
        field = self.field or ("partitions" if self.body is not None else None)
        return {"object": self.what, "field": field, "before": self.before, "after": self.after}

    def make(self, api: AdminApi) -> None:
        """Raises OncelogError."""
        match self.method:
            case "PUT":
                api.put(self.path, self.body)
            case "POST":
                api.post(self.path, self.body)
            case _:
                api.delete(self.path)


def add_apply(app: typer.Typer) -> None:
    """Add the command."""

    @admin_command(app, "apply")
    def apply(
        api: AdminApi,
        file: Annotated[
            Path, typer.Option("--file", "-f", exists=True, dir_okay=False, help="YAML or JSON; see docs/settings.md.")
        ],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes, and make none.")] = False,
        yes: YesOption = False,
        wait_seconds: Annotated[
            int, typer.Option("--wait-seconds", min=0, help="How long to wait for a cluster that does not answer.")
        ] = 0,
    ) -> Answer | Report:
        """Create the objects in a file: tenants, namespaces with policies and rights, topics, policies of the cluster.

        The changes are shown first. Objects that the file does not name are not changed; nothing is deleted. A repeated
        run changes nothing. If a change fails, the earlier changes stay, and the next run makes the remaining ones.
        """
        wanted = read_file(file)
        changes = waited(wait_seconds, lambda: (True, "", list(_changes(api, wanted))))
        lines = "\n".join(map(str, changes))
        if not changes:
            return _report("nothing to change", changes, made=0, dry_run=dry_run)
        if dry_run:
            return _report(f"{lines}\n{_counted(changes)}; none made", changes, made=0, dry_run=True)
        progress(lines)
        confirm(yes, lambda: f"make {_counted(changes)}", typed="yes")
        _make(api, changes)
        return _report(f"{_counted(changes)} made", changes, made=len(changes), dry_run=False)


def _make(api: AdminApi, changes: list[Change]) -> None:
    for number, change in enumerate(changes):
        try:
            change.make(api)
        except OncelogError as error:
            for made in changes[:number]:
                progress(f"made: {made}")
            unknown = "may have been made" if error.retriable else "was not made"
            raise type(error)(
                f"{change.place}: {number} of {_counted(changes)} made; `{change}` {unknown}: {error.message}; "
                "apply the file again to make the rest",
                **error.details,
            ) from error


def _report(text: str, changes: list[Change], *, made: int, dry_run: bool) -> Report:
    return Report(text, {"changes": [each.shown() for each in changes], "made": made, "dry_run": dry_run})


def _counted(changes: list[Change]) -> str:
    return "1 change" if len(changes) == 1 else f"{len(changes)} changes"


def _text(value: Answer) -> str:
    return "not set" if value is None else json.dumps(value)


# --- the difference between file and cluster --------------------------------------------------------------------------


def _changes(api: AdminApi, wanted: Wanted) -> Iterator[Change]:
    """In the order in which they can be made. Raises OncelogError."""
    place = FilePosition(wanted.file)
    if wanted.cluster:
        yield from _policy_changes(api, "cluster", cluster_path(api), wanted.cluster, place.inside("cluster"))
    new_tenants = _missing_tenants(api, wanted)
    for tenant in new_tenants:
        yield _creation(f"tenant {tenant}", tenant_path(tenant), None, place.inside("tenants"))
    new: set[str] = set()
    for name, namespace in wanted.namespaces.items():
        here = place.inside("namespaces").inside(name)
        if _found(api, namespace_path(name)) is None:
            _require_tenant(api, name.partition("/")[0], new_tenants, here)
            yield _creation(f"namespace {name}", namespace_path(name), None, here)
            new.add(name)
        yield from _namespace_changes(api, name, namespace, here, created=name in new)
    for name, topic in wanted.topics.items():
        yield from _topic_changes(api, name, topic, place.inside("topics").inside(name), new)


def _missing_tenants(api: AdminApi, wanted: Wanted) -> list[str]:
    if not wanted.tenants:
        return []
    present = api.get(f"{ROOT}/tenants")
    return [each for each in dict.fromkeys(wanted.tenants) if not isinstance(present, list) or each not in present]


def _require_tenant(api: AdminApi, tenant: str, new: list[str], place: FilePosition) -> None:
    if tenant not in new and _found(api, tenant_path(tenant)) is None:
        raise place.refused(f"tenant {tenant} does not exist: add it to `tenants`")


def _namespace_changes(
    api: AdminApi, name: str, wanted: WantedNamespace, place: FilePosition, *, created: bool
) -> Iterator[Change]:
    what = f"namespace {name}"
    yield from _policy_changes(api, what, namespace_path(name), wanted.policies, place, created=created)
    present = {} if created or not wanted.rights else api.get(permissions_path(name))
    for role, rights in wanted.rights.items():
        granted = present.get(role) if isinstance(present, dict) else None
        before: list[object] = sorted(granted, key=str) if isinstance(granted, list) else []
        if before != rights:
            path, here = permissions_path(name, role), place.inside("rights").inside(role)
            method = "POST" if rights else "DELETE"
            body = rights or None
            yield Change(what, f"rights of {role}", before or None, body, method, path, body, here)


def _topic_changes(
    api: AdminApi, name: str, wanted: WantedTopic, place: FilePosition, new: set[str]
) -> Iterator[Change]:
    what, path, partitions = f"topic {name}", topic_path(name), wanted.partitions
    namespace = name.rpartition("/")[0]
    present = None if namespace in new else _found(api, f"{path}/partitions")
    if present is None:
        if namespace not in new and _found(api, namespace_path(namespace)) is None:
            raise place.refused(f"namespace {namespace} does not exist: add it to `namespaces`")
        yield _creation(what, path if partitions is None else f"{path}/partitions", partitions, place)
    elif partitions is not None and present != {"partitions": partitions}:
        count = present.get("partitions") if isinstance(present, dict) else None
        raise place.inside("partitions").refused(
            f"the topic has {count}, not {partitions}: apply does not change that, because of the order of keys "
            "(see oncelog admin topics update-partitioned-topic)"
        )
    yield from _policy_changes(api, what, path, wanted.policies, place, of_topic=True, created=present is None)


def _policy_changes(
    api: AdminApi,
    what: str,
    path: str,
    wanted: Mapping[str, Answer],
    place: FilePosition,
    *,
    of_topic: bool = False,
    created: bool = False,
) -> Iterator[Change]:
    """path: that of the object. created: the object is new, so no policy is set on it."""
    for name, value in wanted.items():
        policy = POLICIES[name]
        here = f"{path}/{policy.topic_path if of_topic else policy.path}"
        before = None if created else api.get(here)
        if before != value:
            yield Change(what, name, before, value, "POST", here, value, place.inside(name))


def _creation(what: str, path: str, body: Answer, place: FilePosition) -> Change:
    return Change(what, "", None, body, "PUT", path, body, place)


def _found(api: AdminApi, path: str) -> Answer:
    """The answer; None if the object does not exist."""
    try:
        return api.get(path)
    except NotFound:
        return None
