"""`oncelog effects` with a database, against a REST interface that answers what a test has set."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog_effects.cli.effects.app import effects
from oncelog_effects.core.effects.ordered import Rank, Source, StoredPosition
from oncelog_effects.sql_admin import SqlAdmin
from oncelog_effects.sql_store import SqlEffects
from oncelog_effects.store import SourceNames
from tests.cluster.cli.recorded_rest import RecordingServer, served

CLUSTER, TOPIC_ID, OTHER_STORE = "c7" * 16, "0f" * 16, "0b" * 16
ORDERS = "public/default/orders"
TOPIC = f"/admin/v2/persistent/{ORDERS}"
BILLING = f"{TOPIC}/subscription/billing"
ROW = StoredPosition(Rank(2, 4, 3), "c1" * 16, 40, "1:1:39")


class Shop:
    """A database with one row, and what the log says about the same."""

    def __init__(self, rest: RecordingServer, directory: Path) -> None:
        self.rest = rest
        self.path = directory / "shop.db"
        self.path.touch()
        self.url = f"sqlite:///{self.path}"
        self.store_id = self.made(self.url)
        self.put()
        self.rest.answers |= {"/admin/v2/clusters": (200, [CLUSTER]), TOPIC: (200, {"topic_id": TOPIC_ID})}
        self.log()

    @staticmethod
    def made(url: str) -> str:
        engine = create_engine(url)
        try:
            return asyncio.run(SqlEffects(engine).store_id())
        finally:
            engine.dispose()

    def put(self, topic: str = ORDERS, topic_id: str = TOPIC_ID, cluster_id: str = CLUSTER) -> None:
        admin = SqlAdmin(self.url)
        admin.put(Source("billing", topic_id, -1), SourceNames(topic, "billing", cluster_id), lambda _: ROW)
        admin.close()

    def rows(self) -> list[tuple[str, StoredPosition]]:
        admin = SqlAdmin(self.url)
        try:
            return [(row.names.topic, row.stored) for row in admin.view().rows]
        finally:
            admin.close()

    def log(self, *, consumers: int = 0, **more: Any) -> None:
        """Messages 10 to 99; 10 to 39 were consumed."""
        known = {
            "number": 2, "store_id": self.store_id, "effect": "billing", "seek_epoch": 4, "redo_epoch": 4,
            "redo_index": 0, "generation": 3, "mark_delete": 40, "first_index": 10, "next_index": 100, "known_from": 0,
            "forgotten_below": 0, "complete": True, "consumed": [[10, 39]],
        }  # fmt: skip
        answer = {ORDERS: {"consumer_count": consumers, "effects": known | more}}
        for at in (0, 40):
            self.rest.answers[f"{BILLING}?consumed_from={at}"] = (200, answer)

    def run(self, *words: str, database: bool = True, code: int = 0) -> str:
        """The output, or the error."""
        more = ["--database", self.url] if database else []
        if words[0] != "ddl":
            more += ["--admin-url", self.rest.url]
        result = CliRunner().invoke(app, ["effects", *words, *more], env={"COLUMNS": "200"})
        assert result.exit_code == code, (result.output, result.stderr, result.exception)
        return result.stdout or result.stderr

    def changes(self) -> list[tuple[str, str, object]]:
        return [asked for asked in self.rest.asked if asked[0] != "GET"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with served() as rest:
        yield Shop(rest, tmp_path)


def test_status_shows_both_sides(shop: Shop) -> None:
    """Without a cluster what the store has; nothing is changed."""
    offline = json.loads(shop.run("status", "--offline", "-o", "json"))
    assert (offline["store_id"], offline["sources"][0]["log"]) == (shop.store_id, None)
    assert shop.rest.asked == []
    (source,) = json.loads(shop.run("status", "-o", "json"))["sources"]
    assert (source["state"], source["lag"], source["lost"]) == ("ok", 60, [])
    assert (source["log"]["next_index"], source["store"]["position"]) == (100, 40)
    assert " ok " in shop.run("status")
    assert shop.changes() == []


@pytest.mark.parametrize(
    ("log", "state", "code"),
    [
        ({"consumed": [[10, 49]]}, "lost", 0),
        ({"redo_epoch": 5, "redo_index": 20}, "redo", 0),
        ({"store_id": ""}, "unbound", 0),
        ({"store_id": OTHER_STORE}, "store_mismatch", 1),
        ({"redo_epoch": 2}, "redo_lost", 1),
        ({"number": 1}, "store_ahead", 1),
        ({"next_index": 39}, "store_ahead", 1),
        ({"first_index": 45, "consumed": [[10, 49]]}, "store_too_old", 1),
    ],
)  # fmt: skip
def test_status_says_what_a_program_would_end_with(shop: Shop, log: dict[str, Any], state: str, code: int) -> None:
    """By its exit code, too; the message names the command that helps."""
    shop.log(**log)
    (source,) = json.loads(shop.run("status", "-o", "json", code=code))["sources"]
    assert source["state"] == state
    assert not code or "`oncelog effects " in source["message"]


def test_status_sees_a_missing_row_and_table(shop: Shop) -> None:
    """A row by the name of its subscription, and without it the status says that it cannot."""
    engine = create_engine(shop.url)
    with engine.begin() as connection:
        connection.execute(text("delete from oncelog_effects"))
    answer = json.loads(shop.run("status", "-o", "json"))
    assert (answer["sources"], "only subscriptions with a row" in answer["scope"]) == ([], True)
    assert "Name TOPIC and SUBSCRIPTION" in shop.run("status")
    (source,) = json.loads(shop.run("status", "orders", "billing", "-o", "json", code=1))["sources"]
    assert source["state"] == "store_missing"
    with engine.begin() as connection:
        connection.execute(text("drop table oncelog_effects"))
    assert "the table oncelog_effects was dropped" in shop.run("status", code=1)
    assert "store_missing" in shop.run("status", "orders", "billing", code=1)
    shop.run("adopt", "orders", "billing", "--position", "30", "--yes")
    assert [stored.position for _, stored in shop.rows()] == [30]
    engine.dispose()


def test_status_shows_a_pending_redo(shop: Shop) -> None:
    """Its place, and what is behind it."""
    shop.log(redo_epoch=5, redo_index=20)
    assert "from index 20 on again" in shop.run("status")
    (source,) = json.loads(shop.run("status", "-o", "json"))["sources"]
    assert (source["lag"], source["store"]["position"]) == (80, 40)


def test_status_of_what_the_log_does_not_have(shop: Shop) -> None:
    """A subscription or topic that is gone, another cluster; unknown is an error."""
    shop.put("public/default/far", "1e" * 16, "d8" * 16)
    shop.put("public/default/old", "2e" * 16)
    shop.rest.answers |= {
        "/admin/v2/persistent/public/default/old": (404, {"code": "topic_not_found", "detail": "none"}),
        f"{BILLING}?consumed_from=40": (404, {"code": "subscription_not_found", "detail": "none"}),
    }
    found = json.loads(shop.run("status", "-o", "json"))["sources"]
    states = {each["store"]["topic"].rpartition("/")[2]: each["state"] for each in found}
    assert states == {"far": "other_cluster", "old": "gone", "orders": "no_subscription"}
    shop.rest.answers[TOPIC] = (503, {"code": "service_unavailable", "detail": "ZooKeeper is away"})
    assert "ZooKeeper is away" in shop.run("status", code=4)


LOSING: list[tuple[tuple[str, ...], dict[str, Any], str]] = [
    (
        ("redo", "orders", "billing", "--from-index", "20"),
        {},
        "from index 20 on (public/default/orders has messages 10",
    ),
    (("adopt", "orders", "billing", "--position", "30"), {}, "those from 30 to 39 take effect, perhaps a second time"),
    (("adopt", "orders", "billing", "--position", "50"), {}, "those from 40 to 49 get no effect any more"),
    (("adopt", "orders", "billing"), {"redo_epoch": 2}, "below index 40, and of none from there on"),
    (("rebind", "orders", "billing"), {"store_id": OTHER_STORE}, f"instead of {OTHER_STORE}: {ORDERS} from index 40"),
]


@pytest.mark.parametrize(("words", "log", "loss"), LOSING, ids=[f"{case[0][0]} {case[0][-1]}" for case in LOSING])
def test_losing_command_says_what_and_wants_yes(
    shop: Shop, words: tuple[str, ...], log: dict[str, Any], loss: str
) -> None:
    """Without a terminal nothing is done, in the log and in the store."""
    shop.log(**log)
    before = shop.rows()
    shown = shop.run(*words, database=words[0] != "redo", code=1)
    assert shown.startswith("error: nothing was done: this would ")
    assert loss in shown
    assert (shop.rows(), shop.changes()) == (before, [])


@pytest.mark.parametrize(
    "words", ["redo orders billing --from earliest", "adopt orders billing", "rebind orders billing"]
)
def test_nothing_changes_under_a_program(shop: Shop, words: str) -> None:
    shop.log(consumers=1, store_id=OTHER_STORE)
    before = shop.rows()
    shown = shop.run(*words.split(), "--yes", database="redo" not in words, code=1)
    assert "has 1 connected consumer: stop the programs" in shown
    assert (shop.rows(), shop.changes()) == (before, [])


def test_messages_name_what_helps(shop: Shop, tmp_path: Path) -> None:
    """The options of this command, an empty file, and that an adoption is not needed."""
    shown = shop.run("redo", "orders", "billing", "--yes", database=False, code=1)
    assert "give one of --from and --from-index" in shown
    new = f"sqlite:///{tmp_path}/new.db"
    shown = shop.run("rebind", "orders", "billing", "--database", new, "--empty", "--yes", database=False, code=1)
    assert "a new database begins as an empty file: create it" in shown
    shown = shop.run("adopt", "orders", "billing", "--position", "30", code=1)
    assert "store and log agree: without this command a program goes on at index 40" in shown
    shown = shop.run("redo", "orders", "billing", "--from", "earliest", "--yes", database=False)
    assert f"of {ORDERS} redoes its effects" in shown


def test_redo_is_a_seek(shop: Shop) -> None:
    shop.run("redo", "orders", "billing", "--from", "earliest", "--yes", database=False)
    assert shop.changes() == [("POST", f"{BILLING}/resetcursor", {"position": "earliest", "redo": True})]


def test_adopted_row_is_below_the_next_claim(shop: Shop) -> None:
    """It keeps what the store says, or begins where the operator says; whoever had claimed it has not any more."""
    shop.log(redo_epoch=2)
    shop.run("adopt", "orders", "billing", "--yes")
    (_, kept), = shop.rows()  # fmt: skip
    assert (kept.rank, kept.position, kept.last_message) == (Rank(2, 2, 3), 40, "1:1:39")
    assert kept.claim != ROW.claim
    shop.log(redo_epoch=2, next_index=39)
    assert "say with --position" in shop.run("adopt", "orders", "billing", "--yes", code=1)
    assert "outside of the topic's 10 to 39" in shop.run("adopt", "orders", "billing", "--position", "40", code=1)
    shop.run("adopt", "orders", "billing", "--position", "30", "--yes")
    (_, moved), = shop.rows()  # fmt: skip
    assert (moved.position, moved.last_message) == (30, "")


def test_adopting_what_is_elsewhere_is_refused(shop: Shop) -> None:
    for store_id in (OTHER_STORE, ""):
        shop.log(store_id=store_id)
        shop.run("adopt", "orders", "billing", "--position", "30", "--yes", code=1)
    assert shop.rows() == [(ORDERS, ROW)]


def test_interrupted_rebind_goes_on(shop: Shop, tmp_path: Path) -> None:
    """The row is copied, and then the log does not answer. What a program has done on the new store since is kept."""
    new = tmp_path / "new.db"
    new.touch()
    words = ("rebind", "orders", "billing", "--database", f"sqlite:///{new}", "--from-database", shop.url, "--yes")
    shop.rest.answers[f"{BILLING}/store"] = (503, {"code": "service_unavailable", "detail": "moving"})
    assert "moving" in shop.run(*words, database=False, code=4)
    (_, fenced), = shop.rows()  # fmt: skip
    assert fenced.claim != ROW.claim
    del shop.rest.answers[f"{BILLING}/store"]
    assert "is bound to sqlite" in shop.run(*words, database=False)
    new_store = shop.made(f"sqlite:///{new}")
    assert shop.changes()[-1] == ("PUT", f"{BILLING}/store", {"store_id": new_store})
    shop.log(store_id=new_store)
    assert "already" in shop.run(*words, database=False)


def test_rebind_to_an_empty_database_redoes_everything(shop: Shop, tmp_path: Path) -> None:
    """The row comes last: a program that begins before that is refused."""
    new = tmp_path / "new.db"
    new.touch()
    url = f"sqlite:///{new}"
    shop.rest.answers[f"{BILLING}/resetcursor"] = (503, {"code": "service_unavailable", "detail": "moving"})
    shop.run("rebind", "orders", "billing", "--database", url, "--empty", "--yes", database=False, code=4)
    admin = SqlAdmin(url)
    assert admin.view().rows == ()
    del shop.rest.answers[f"{BILLING}/resetcursor"]
    shop.run("rebind", "orders", "billing", "--database", url, "--empty", "--yes", database=False)
    assert [(row.stored.rank, row.stored.position) for row in admin.view().rows] == [(Rank(0, 0, 0), 10)]
    admin.close()
    assert [path for _, path, _ in shop.changes()[-2:]] == [f"{BILLING}/store", f"{BILLING}/resetcursor"]


def test_rebind_to_a_copy_is_refused(shop: Shop, tmp_path: Path) -> None:
    """It has the store id of the original."""
    copy = tmp_path / "copy.db"
    copy.write_bytes(shop.path.read_bytes())
    shop.log(store_id=OTHER_STORE)
    words = ("rebind", "orders", "billing", "--database", f"sqlite:///{copy}", "--from-database", shop.url, "--yes")
    assert "one is a copy of the other" in shop.run(*words, database=False, code=1)


def test_tables_of_an_administrator(shop: Shop) -> None:
    """What `ddl` prints makes a database usable."""
    statements = json.loads(shop.run("ddl", "--dialect", "sqlite", "-o", "json", database=False))
    assert [statement.split()[2] for statement in statements] == ["oncelog_effects", "oncelog_effects_meta"]
    assert "use one of postgresql, sqlite" in shop.run("ddl", "--dialect", "mysql", database=False, code=1)


def test_commands_and_options_that_messages_name_exist() -> None:
    """An error that names a command that is not there helps nobody."""
    services = Path(__file__).resolve().parents[3] / "services"
    sources = " ".join(path.read_text() for path in sorted(services.rglob("*.py")))
    sources = re.sub(r'"\s+f?"', "", sources)  # parts of one string
    named = set(re.findall(r"`oncelog effects ([a-z]+)(?: (--[a-z-]+))?", sources))
    commands = {command.name: command for command in effects.registered_commands}
    assert {name for name, _ in named} >= {"adopt", "redo", "rebind", "ddl"}
    for name, option in sorted(named):
        shown = CliRunner().invoke(app, ["effects", name, "--help"], env={"COLUMNS": "200"}).stdout
        assert name in commands, name
        assert option in shown, (name, option)
