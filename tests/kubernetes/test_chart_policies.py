"""NetworkPolicies with limited clients still allow the release's own pods."""

from tests.kubernetes.chart import RELEASE, of_kind, one


def test_helm_test_may_connect_if_clients_are_limited() -> None:
    """Its pod looks topics up, administers, publishes and reads; a list of named clients must not exclude it."""
    (check,) = of_kind("certmanager", "Pod")
    labels = check["metadata"]["labels"]
    for part, ports in (("metadata", {6650, 8080}), ("owner", {6650})):
        rules = one("certmanager", "NetworkPolicy", f"{RELEASE}-{part}")["spec"]["ingress"]
        open_ports = {
            port["port"]
            for rule in rules
            for port in rule["ports"]
            for peer in rule["from"]
            if set(peer) == {"podSelector"} and peer["podSelector"]["matchLabels"].items() <= labels.items()
        }
        assert open_ports == ports, part
