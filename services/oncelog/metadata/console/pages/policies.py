"""The policies of the cluster, and of one namespace: what holds for all topics that set none of their own."""

from typing import Any

from oncelog.metadata.console.page import Page, View
from oncelog.metadata.console.rest_reading import rest_path


async def collect_cluster(view: View) -> dict[str, Any]:
    """action: where the forms are sent; none: the viewer may change nothing."""
    context: dict[str, Any] = {"level": "cluster", "policies": None, "reads": [], "action": None}
    if view.caller.superuser:
        clusters = await view.read("/admin/v2/clusters")
        context |= {"policies": clusters, "reads": [clusters]}
        if clusters.known:
            (cluster,) = clusters.value
            policies = await view.read(rest_path("/admin/v2/clusters/{}/policies", cluster))
            action = rest_path("/console/clusters/{}/policy", cluster)
            context |= {"policies": policies, "reads": [policies], "action": action}
    return context


async def collect_namespace(view: View) -> dict[str, Any]:
    """Raises NotFound."""
    place = view.parts["tenant"], view.parts["namespace"]
    policies = await view.read(rest_path("/admin/v2/namespaces/{}/{}/policies", *place))
    policies.require_place()
    action = rest_path("/console/policies/{}/{}/policy", *place) if view.may("admin", view.namespace) else None
    return {"level": "namespace", "policies": policies, "reads": [policies], "action": action}


PAGE = Page("/console/policies", "Policies", "policies.html", collect_cluster, interval_s=5.0, key="c")
NAMESPACE_PAGE = Page(
    "/console/policies/{tenant}/{namespace}", "Policies of a namespace", "policies.html", collect_namespace,
    interval_s=5.0,
)  # fmt: skip
