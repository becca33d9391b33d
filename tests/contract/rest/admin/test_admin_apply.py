"""`oncelog admin apply` against a metadata service: what is created, what stays, and what a failure leaves."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from oncelog.cli.admin.provisioning_file import POLICIES, read_file
from oncelog.cli.app import app
from oncelog.core.errors import InvalidArgument
from tests.cluster.metadata.metadata_world import CLUSTER_ID
from tests.contract.rest.admin.admin_world import Admin, serving

RETENTION = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
QUOTA = {"limitSize": 10737418240, "policy": "producer_exception"}
#: A value of each policy.
VALUES: dict[str, object] = {
    "deduplication": False,
    "autoTopicCreation": False,
    "retention": RETENTION,
    "messageTTL": 3600,
    "backlogQuota": QUOTA,
    "dispatcherPauseOnAckStatePersistent": True,
    "maxUnackedRangesToPersist": 1000,
    "ackStateBytesMax": 1048576,
    "assignedProducerExpiry": 86400,
    "chosenProducerExpiry": 31536000,
    "producerLeaseExpiry": 3600,
    "maxKnownProducersPerTopic": 500000,
    "maxKnownProducersPerNamespace": 900000,
    "pulsarNewInstanceFences": True,
    "pulsarAcceptStale": True,
    "pulsarAcceptOtherContent": True,
    "pulsarRefuseUnverified": True,
    "pulsarAckUndecodable": True,
    "kafkaCompact": True,
}
CONTENT: dict[str, object] = {
    "cluster": VALUES,
    "tenants": ["shop"],
    "namespaces": {"shop/orders": {**VALUES, "rights": {"importer": ["produce"], "billing": ["consume", "produce"]}}},
    "topics": {
        "shop/orders/new": {"partitions": 4, "retention": RETENTION},
        "shop/orders/old": {name: VALUES[name] for name, policy in POLICIES.items() if policy.topic_path},
        "greetings": {},
    },
}
ORDERS = "/admin/v2/namespaces/shop/orders"


async def apply(admin: Admin, path: Path, content: object, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `oncelog admin apply` with this file."""

    def run() -> tuple[int, str, str]:
        path.write_text(yaml.safe_dump(content))
        given = ["admin", "apply", "--file", str(path), *words, "--admin-url", f"http://127.0.0.1:{admin.port}"]
        result = CliRunner().invoke(app, given)
        return result.exit_code, result.stdout, result.stderr

    return await asyncio.to_thread(run)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.yaml"


@pytest.mark.asyncio
async def test_everything_that_the_file_names_is_created(path: Path) -> None:
    """Tenants, namespaces with policies and rights, topics, and the policies of the cluster."""
    async with serving() as admin:
        code, output, errors = await apply(admin, path, CONTENT, "--yes")
        assert (code, output) == (0, "63 changes made\n"), errors
        assert "+ tenant shop\n+ namespace shop/orders\n" in errors
        assert "+ topic shop/orders/new, 4 partitions\n" in errors
        assert await admin.get("/admin/v2/tenants") == ["public", "shop"]
        assert await admin.get(f"{ORDERS}/permissions") == {"billing": ["consume", "produce"], "importer": ["produce"]}
        assert await admin.get(f"{ORDERS}/backlogQuota") == {**QUOTA, "limitTime": -1}
        assert await admin.get(f"/admin/v2/clusters/{CLUSTER_ID}/retention") == RETENTION
        topics = "/admin/v2/persistent/shop/orders"
        assert await admin.get(f"{topics}/new/partitions") == {"partitions": 4}
        assert await admin.get(f"{topics}/old/deduplicationEnabled") is False
        assert await admin.get("/admin/v2/persistent/public/default") == ["public/default/greetings"]


@pytest.mark.asyncio
async def test_repeated_run_changes_nothing(path: Path) -> None:
    """It reads, finds no difference, and writes nothing."""
    async with serving() as admin:
        assert (await apply(admin, path, CONTENT, "--yes"))[0] == 0
        assert await apply(admin, path, CONTENT, "--yes") == (0, "nothing to change\n", "")
        code, output, _ = await apply(admin, path, CONTENT, "-o", "json")
        assert (code, json.loads(output)) == (0, {"changes": [], "made": 0, "dry_run": False})


@pytest.mark.asyncio
async def test_dry_run_shows_the_changes_and_makes_none(path: Path) -> None:
    """As lines, and as JSON for programs."""
    content = {"tenants": ["shop"], "namespaces": {"shop/orders": {"messageTTL": 60}}}
    async with serving() as admin:
        code, output, errors = await apply(admin, path, content, "--dry-run")
        assert (code, errors) == (0, "")
        lines = ["+ tenant shop", "+ namespace shop/orders", "~ namespace shop/orders messageTTL: not set -> 60"]
        assert output.splitlines() == [*lines, "3 changes; none made"]
        shown = json.loads((await apply(admin, path, content, "--dry-run", "-o", "json"))[1])
        assert (shown["made"], shown["dry_run"], len(shown["changes"])) == (0, True, 3)
        last = {"object": "namespace shop/orders", "field": "messageTTL", "before": None, "after": 60}
        assert shown["changes"][-1] == last
        assert await admin.get("/admin/v2/tenants") == ["public"]


@pytest.mark.asyncio
async def test_program_without_a_terminal_must_give_yes(path: Path) -> None:
    """A question that nobody can answer must not hang, or count as answered."""
    async with serving() as admin:
        code, _, errors = await apply(admin, path, {"tenants": ["shop"]})
        assert code == 1
        assert "+ tenant shop" in errors
        assert "nothing was done: this would make 1 change; give --yes" in errors
        assert await admin.get("/admin/v2/tenants") == ["public"]


@pytest.mark.asyncio
async def test_what_the_file_does_not_name_stays(path: Path) -> None:
    """Other policies, roles, topics. Of a role that is named, the rights become those of the file."""
    async with serving() as admin:
        assert (await apply(admin, path, CONTENT, "--yes"))[0] == 0
        content = {"namespaces": {"shop/orders": {"messageTTL": 7, "rights": {"importer": [], "audit": ["consume"]}}}}
        code, output, errors = await apply(admin, path, content, "--yes")
        assert (code, output) == (0, "3 changes made\n"), errors
        assert '~ namespace shop/orders rights of importer: ["produce"] -> not set' in errors
        granted = {"audit": ["consume"], "billing": ["consume", "produce"]}
        assert await admin.get(f"{ORDERS}/permissions") == granted
        assert await admin.get(f"{ORDERS}/retention") == RETENTION
        assert len(await admin.get("/admin/v2/persistent/shop/orders")) == 2


@pytest.mark.asyncio
async def test_failed_change_leaves_those_before_it_and_the_next_run_makes_the_rest(path: Path) -> None:
    """The error says what was made, what was not, and where the file asks for it."""
    orders: dict[str, object] = {"retention": RETENTION, "ackStateBytesMax": 1 << 40}
    content = {"tenants": ["shop"], "namespaces": {"shop/orders": orders}, "topics": {"shop/orders/new": {}}}
    async with serving() as admin:
        code, output, errors = await apply(admin, path, content, "--yes")
        assert (code, output) == (1, "")
        assert "made: + tenant shop\nmade: + namespace shop/orders\n" in errors
        assert "cluster.yaml: namespaces.shop/orders.ackStateBytesMax: 3 of 5 changes made" in errors
        assert "was not made: body: Input should be less than or equal to 67108864" in errors
        assert await admin.get(f"{ORDERS}/retention") == RETENTION
        orders["ackStateBytesMax"] = 1 << 20
        code, output, errors = await apply(admin, path, content, "--yes")
        assert (code, output) == (0, "2 changes made\n"), errors


IMPOSSIBLE = [
    ({"namespaces": {"shop/orders": {}}}, "namespaces.shop/orders: tenant shop does not exist"),
    ({"topics": {"public/orders/new": {}}}, "topics.public/orders/new: namespace public/orders does not exist"),
    ({"topics": {"flights": {"partitions": 5}}}, "topics.public/default/flights.partitions: the topic has 4, not 5"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("content", "words"), IMPOSSIBLE)
async def test_what_cannot_be_made_is_found_before_the_first_change(
    path: Path, content: dict[str, object], words: str
) -> None:
    """A parent that does not exist, and another number of partitions."""
    async with serving() as admin:
        await admin.change("PUT", "/admin/v2/persistent/public/default/flights/partitions", json=4)
        code, _, errors = await apply(admin, path, {"tenants": ["acme"], **content}, "--yes")
        assert code == 1
        assert f"cluster.yaml: {words}" in errors
        assert await admin.get("/admin/v2/tenants") == ["public"]


@pytest.mark.asyncio
async def test_file_has_every_policy_of_rest() -> None:
    """At the same levels, and under the last element of its path."""
    async with serving() as admin:
        paths = (await admin.get("/openapi.json"))["paths"]
    for prefix, named in (
        ("/admin/v2/clusters/{cluster}/", {policy.path for policy in POLICIES.values()}),
        ("/admin/v2/namespaces/{tenant}/{namespace}/", {policy.path for policy in POLICIES.values()}),
        ("/admin/v2/persistent/{tenant}/{namespace}/{topic}/", {policy.topic_path for policy in POLICIES.values()}),
    ):
        policies = {
            path.removeprefix(prefix)
            for path, calls in paths.items()
            if path.startswith(prefix) and "policies" in calls.get("post", {}).get("tags", ())
        }
        assert policies == named - {""}
    assert set(VALUES) == set(POLICIES)


#: (the file, the words of the error behind the file's name)
REFUSED = [
    ("namespace: {}", ": unknown field namespace; known: cluster, namespaces, tenants, topics"),
    ("namespaces: [a]", ": namespaces: must be a mapping, not a list"),
    ("namespaces: {a/b: {retention: 7d}}", ": namespaces.a/b.retention: must be a mapping, not '7d'"),
    (
        "namespaces: {a/b: {retention: {retentionTimeInMinutes: 1}}}",
        ": namespaces.a/b.retention: retentionSizeInMB is missing",
    ),
    ("namespaces: {a/b: {retention: {time: 1}}}", ": namespaces.a/b.retention: unknown field time"),
    ("namespaces: {a/b: {messageTTL: '60'}}", ": namespaces.a/b.messageTTL: must be a whole number, not '60'"),
    ("namespaces: {a/b: {messageTTL: true}}", ": namespaces.a/b.messageTTL: must be a whole number, not True"),
    ("namespaces: {a/b: {messageTTL: null}}", ": namespaces.a/b.messageTTL: must be a whole number, not nothing"),
    ("namespaces: {a/b: {deduplication: 1}}", ": namespaces.a/b.deduplication: must be true or false, not 1"),
    ("namespaces: {a/b: {partitions: 1}}", ": namespaces.a/b: unknown field partitions"),
    ("namespaces: {a/b: {backlogQuota: {limitSize: 1}}}", ": namespaces.a/b.backlogQuota.policy: must be"),
    (
        "namespaces: {a/b: {rights: {shop: [write]}}}",
        ": namespaces.a/b.rights.shop: unknown right 'write'; known: admin",
    ),
    ("namespaces: {a/b: {rights: {shop: produce}}}", ": namespaces.a/b.rights.shop: must be a list, not 'produce'"),
    ("namespaces: {a/b: {rights: {'a b': [admin]}}}", ": namespaces.a/b.rights: role 'a b' has a character"),
    ("namespaces: {a/b/c: {}}", ": namespaces: namespace must be `tenant/namespace`"),
    ("namespaces: {public/x: {}, x: {}}", ": namespaces: public/x is there twice"),
    ("namespaces: {a/b: {}, a/b: {}}", ": not valid YAML: a/b is there twice"),
    ("cluster: {rights: {}}", ": cluster: unknown field rights"),
    ("tenants: shop", ": tenants: must be a list, not 'shop'"),
    ("tenants: [no]", ": tenants: a name must be text, not False; put it in quotes"),
    ("topics: {new: {partitions: 0}}", ": topics.new.partitions: must be 1 or more"),
    ("topics: {new: {partitions: 1.5}}", ": topics.new.partitions: must be a whole number, not 1.5"),
    ("topics: {new: {autoTopicCreation: true}}", ": topics.new: unknown field autoTopicCreation"),
    ("topics: {new-partition-3: {}}", ": topics: new-partition-3 is one partition: name its topic new"),
    ("[1, 2]", ": must be a mapping, not a list"),
    ("a: [", ": not valid YAML: while parsing"),
    ("? [a]\n: 1", ": not valid YAML: a key must be text"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_wrong_file_is_refused_with_its_place(path: Path, text: str, words: str) -> None:
    """Before the first request: file, path in it, and field."""
    path.write_text(text)
    with pytest.raises(InvalidArgument) as refused:
        read_file(path)
    assert f"cluster.yaml{words}" in refused.value.message


@pytest.mark.parametrize("text", ["", "tenants: []", "namespaces:", "{}", '{"tenants": []}'])
def test_file_that_names_nothing_is_valid(path: Path, text: str) -> None:
    """JSON is YAML, too."""
    path.write_text(text)
    wanted = read_file(path)
    assert not wanted.tenants
    assert not wanted.namespaces
