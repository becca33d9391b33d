"""NetworkPolicies with limited clients still allow the release's own pods."""

from tests.kubernetes.chart import RELEASE, of_kind, one, template


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


def test_readers_may_connect_to_storage_nodes_only_if_owners_send_them_there() -> None:
    """An open port would serve nobody. Without authentication it would serve everybody."""
    for words, open_to_all in (((), False), (("--set", "owner.settings.storageReads=true"), True)):
        done = template(
            "--set", "tls.enabled=false,redis.enabled=false", *words, "-s", "templates/networkpolicies.yaml"
        )
        assert done.returncode == 0, done.stderr
        policy = done.stdout.split(f"name: {RELEASE}-storage\n")[1].split("---")[0]
        assert ("from:" not in policy.split("port: 6650")[1].split("- ports:")[0]) is open_to_all


def test_storage_nodes_are_opened_only_with_authentication() -> None:
    """Without it, whoever reaches one may write there."""
    words = "tls.enabled=false,redis.enabled=false,auth.enabled=false,owner.settings.storageReads=true"
    done = template("--set", words)
    assert done.returncode != 0
    assert "let everybody write without authentication: set auth.enabled" in done.stderr
    assert template("--set", f"{words},networkPolicy.enabled=false").returncode == 0
