"""What the suite consists of: parts that run by default, and proofs.

A part is a process of its own. Each folder of `tests/contract` is one, and each folder of `tests/cluster`, because work
that outlives its test then disturbs no other folder. The tests of a distribution beside the log are a folder of tests/
(`doors`, `effects`, `lab`, `spark`), and parts with its name.

A proof is a file of tests that takes long, or that only a change of some folders can break. `make proofs` runs all,
for a night; `.ci/run` runs those of the folders that a change touches. What a proof covers has a smaller test in a
part: each hazard has one.
"""

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.suite.proof import CORE, Proof, inside
from tests.suite.proofs_of_doors import PROOFS_OF_DOORS

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the suite.

    paths: folders and files below tests/. computes: it keeps a core busy, while others mostly wait for what they have
    started. seconds: about what it takes on two cores beside the others; it decides the order until it has run here.
    """

    name: str
    paths: tuple[str, ...]
    seconds: float = 60.0
    computes: bool = False
    #: (2, 3): the second of three parts, each of which has every third file of the folders
    share: tuple[int, int] = (1, 1)
    #: instead of pytest
    words: tuple[str, ...] = ()
    #: of a part with words: it is run for a change that needs a test file of this folder; empty: for each change
    beside: str = ""

    @property
    def command(self) -> list[str]:
        if self.words:
            return list(self.words)
        return [sys.executable, "-m", "pytest", *(f"tests/{path}" for path in self.chosen())]

    def chosen(self) -> list[str]:
        """Its folders and files; only files if a proof is among them, or if it shares them with other parts."""
        if self.share == (1, 1) and not any(inside(file, path) for file in proof_files() for path in self.paths):
            return list(self.paths)
        return self.files()

    def files(self) -> list[str]:
        """All of its test files, below tests/."""
        number, count = self.share
        tests = ROOT / "tests"
        found = {file for path in self.paths for file in _test_files(tests / path)}
        return sorted({file.relative_to(tests).as_posix() for file in found} - set(proof_files()))[number - 1 :: count]

    def only(self, files: Collection[str]) -> "Part | None":
        """The part with these of its files alone; None without any. A part that runs no files stays whole."""
        if self.words:
            return self if not self.beside or any(inside(file, self.beside) for file in files) else None
        own = tuple(file for file in self.files() if file in files)
        return replace(self, paths=own, share=(1, 1)) if own else None

    def is_named(self, name: str) -> bool:
        """By its name, or by that of a folder of parts."""
        return inside(self.name, name)


def _test_files(path: Path) -> Iterable[Path]:
    return path.glob("**/test_*.py") if path.is_dir() else [path]


def proof_files() -> list[str]:
    """Below tests/."""
    return [file for proof in PROOFS for file in proof.files]


def as_part(proof: Proof) -> Part:
    """The process that runs it."""
    words = proof.words or (sys.executable, "-m", "pytest", *proof.paths())
    return Part(f"proof/{proof.name}", (), proof.seconds, words=words)


def _shared(name: str, paths: tuple[str, ...], count: int, seconds: float, computes: bool = False) -> tuple[Part, ...]:
    """The same folders in so many parts of about the same length."""
    return tuple(
        Part(f"{name}/{number}-of-{count}", paths, seconds, computes, (number, count)) for number in range(1, count + 1)
    )


#: They keep the outcomes of the same runs, so they belong into one process.
_SWEEP = tuple(f"simulation/test_{name}.py" for name in ("coverage", "runs", "seeds"))
_RUNS = ("simulation/test_mutants.py", "simulation/histories", "simulation/seeds", "simulation/watches")


def _new_seeds(count: int, each: str, *more: str) -> tuple[str, ...]:
    """Runs of the simulation with new seeds, so many of each kind. each: when there are others."""
    return (sys.executable, "-m", "tests.simulation", "--seeds", str(count), "--new-each", each, *more)


PARTS: tuple[Part, ...] = (
    Part("lint", (), 100.0, True, words=("make", "--no-print-directory", "lint")),
    Part("simulation/sweep", _SWEEP, 80.0, True),
    Part("simulation/planted", _RUNS, 65.0, True),
    Part(
        "simulation/new-seeds",
        (),
        40.0,
        True,
        words=_new_seeds(15, "half-day", "--processes", "1"),
        beside="simulation",
    ),
    *_shared("core", ("core",), 2, 50.0, True),
    Part("model", ("model",), 10.0, True),
    Part("kubernetes", ("kubernetes",), 50.0, True),
    Part("tidy", ("tidy", "surface", "fault_proof", "stories"), 45.0, True),
    *_shared("cluster/clients", ("cluster/clients",), 2, 95.0),
    Part("cluster/cli", ("cluster/cli",), 90.0),
    Part("cluster/console", ("cluster/console",), 10.0),
    Part(
        "cluster/metadata",
        ("cluster/metadata", "cluster/test_until.py", "cluster/test_kills.py", "cluster/test_sessions.py"),
        40.0,
    ),
    Part("cluster/processes", ("cluster/processes",), 85.0),
    Part("cluster/storage", ("cluster/storage",), 70.0),
    Part(
        "doors",
        (
            *(f"doors/{room}" for room in ("core", "kafka", "pulsar", "rest", "proof")),
            "doors/clients/test_python_client.py",
        ),
        80.0,
        True,
    ),
    Part("doors/cluster", ("doors/cluster",), 180.0),
    Part(
        "doors/clients",
        (
            *("doors/clients/test_file_through_kills.py", "doors/clients/test_python_consumers.py"),
            *("doors/clients/test_kafka_clients.py", "doors/clients/test_kafka_administrators.py"),
            *("doors/clients/test_kcat.py", "doors/clients/groups"),
        ),
        155.0,
    ),
    Part("lab", ("lab",), 35.0),
    Part("spark", ("spark", "proofs", "spark_proof", "jobs_proof"), 110.0),
    Part("effects/core", ("effects/core", "effects/model"), 25.0, True),
    Part("effects/contract", ("effects/contract",), 165.0),
    Part("effects/cluster", ("effects/cluster", "effects/effects_proof"), 120.0),
    Part("contract/copies", ("contract/copies", "contract/eras", "contract/topics"), 15.0),
    Part("contract/node", ("contract/node",), 35.0),
    Part("contract/notes", ("contract/notes", "contract/rpc"), 35.0),
    Part("contract/owner", ("contract/owner",), 155.0),
    Part("contract/process", ("contract/process",), 100.0),
    Part("contract/repair", ("contract/repair", "contract/restore", "contract/proof"), 70.0),
    Part("contract/rest", ("contract/rest",), 185.0),
    Part("contract/sdk", ("contract/sdk",), 110.0),
    Part("contract/stores", ("contract/stores", "contract/storage_client"), 100.0),
)

_STORAGE = "services/oncelog/log_storage"
_DISK_ROOMS = (_STORAGE, f"{CORE}/node", "services/oncelog/storage_client", "tests/fault_proof")

PROOFS: tuple[Proof, ...] = (
    Proof(
        "upgrade",
        ("cluster/processes/test_upgrade.py",),
        (
            f"{CORE}/process_version.py",
            f"{CORE}/placement",
            f"{CORE}/formats",
            "proto/oncelog",
            *(f"services/oncelog/metadata/{room}" for room in ("cluster", "owners", "placement", "topics")),
            "services/oncelog/metadata_store",
            "tests/golden",
            "tests/upgrade_proof",
        ),
        (
            "core/placement/test_level.py",
            "contract/stores/test_stores_starting.py",
            "contract/rest/admin/test_admin_level.py",
        ),
    ),
    Proof(
        "golden-directory",
        ("cluster/processes/test_golden.py",),
        (
            f"{CORE}/formats",
            f"{CORE}/acks",
            f"{CORE}/snapshots",
            f"{CORE}/publishing",
            f"{CORE}/ledger",
            f"{_STORAGE}/directory",
            "services/oncelog/metadata_store/session",
            "tests/golden",
        ),
        ("cluster/processes/test_former_directory.py",),
    ),
    Proof(
        "power-cuts",
        ("cluster/storage/test_power_cuts.py",),
        _DISK_ROOMS,
        ("cluster/storage/test_storage_faults.py", "contract/node/directory/test_segments.py"),
    ),
    Proof(
        "random-faults",
        ("cluster/storage/test_random_faults.py",),
        (*_DISK_ROOMS, f"{CORE}/repair", "services/oncelog/metadata/repair"),
        ("cluster/storage/test_storage_faults.py", "contract/repair/test_repair.py"),
    ),
    Proof(
        "compaction-kills",
        ("cluster/storage/test_compaction_kills.py",),
        (f"{_STORAGE}/upkeep", f"{_STORAGE}/directory", "tests/fault_proof"),
        ("contract/node/directory/test_compaction.py",),
    ),
    Proof(
        "directories-of-the-past",
        ("cluster/storage/test_directory_of_the_past.py",),
        (f"{_STORAGE}/directory", f"{_STORAGE}/serve", f"{CORE}/node", f"{CORE}/ledger"),
        ("contract/node/directory/test_directory_starts.py", "contract/node/test_storage_tools.py"),
    ),
    Proof(
        "benchmarks",
        ("lab/test_bench.py", "lab/test_spark_bench.py"),
        ("services/oncelog_lab/bench", "services/oncelog_lab/peer_bench", "services/oncelog/client"),
        ("lab/test_bench_figures.py",),
    ),
    Proof(
        "chaos",
        ("lab/test_chaos.py",),
        ("services/oncelog_lab/chaos",),
        ("lab/test_chaos_runner.py", "lab/test_schedule.py"),
    ),
    Proof(
        "chart-variants",
        (
            *(f"kubernetes/test_chart_{name}.py" for name in ("backend_tls", "certificates", "external", "extras")),
            *(f"kubernetes/test_chart_{name}.py" for name in ("notes", "pipeline", "programs", "provisioning")),
            *(f"kubernetes/test_chart_{name}.py" for name in ("requirements", "umbrella", "wrong_values")),
            "kubernetes/test_chart_zookeeper_secret.py",
        ),
        (
            "deploy/helm",
            "services/oncelog/cli/admin/provisioning_file.py",
            "services/oncelog_spark/cli",
            "services/oncelog_effects/cli/relay",
            "services/oncelog/metadata/observing/served_certificates.py",
            "services/oncelog/runtime/settings.py",
            "tests/kubernetes",
        ),
        ("kubernetes/test_chart_manifests.py", "kubernetes/test_chart_values.py"),
    ),
    Proof(
        "console-in-a-browser",
        ("cluster/console/test_pages.py", "cluster/console/test_actions.py"),
        ("services/oncelog/metadata/console", "services/oncelog/metadata/rest"),
        ("cluster/console/test_one_page.py", "contract/rest/console/test_overview.py"),
    ),
    Proof(
        "recipes",
        tuple(
            f"cluster/recipes/test_{name}.py"
            for name in ("celery", "copier", "cron", "file_to_log_to_file", "web_shop", "word_count")
        ),
        ("docs/recipes.md", "services/oncelog_effects", "services/oncelog/client"),
        ("effects/cluster/test_effects.py", "effects/cluster/test_outbox.py", "effects/cluster/test_topic_effects.py"),
    ),
    Proof(
        "demo",
        ("lab/test_demo.py",),
        ("services/oncelog_lab/demo", "services/oncelog/cli/produce", "services/oncelog/cli/consume"),
        ("lab/test_file_verdict.py", "lab/test_verdict.py", "cluster/clients/test_failover.py"),
    ),
    Proof(
        "models",
        ("model/test_model.py", "effects/model/test_relay_model.py", "model/years/test_years_models.py"),
        (
            "tests/model",
            "tests/effects/model",
            "services/oncelog_effects/core",
            *(f"{CORE}/{room}" for room in ("acks", "delivery", "era.py", "ledger", "node")),
            *(f"{CORE}/{room}" for room in ("rebuild", "records", "repair", "formats/note.py")),
        ),
        ("simulation/test_seeds.py", "simulation/test_mutants.py"),
    ),
    Proof(
        "spark-jobs",
        (
            "spark/audit/test_audit.py",
            "spark/jobs/test_compact.py",
            "spark/jobs/test_copy_job.py",
            "spark/jobs/test_export.py",
            "spark/jobs/test_import.py",
            "spark/sink/test_sink_stream.py",
            "spark/test_spark_guide.py",
        ),
        (
            "services/oncelog_spark",
            "services/oncelog/verify",
            "services/oncelog/storage_client",
            "docs/spark.md",
            "docker/requirements-pipeline.txt",
        ),
        (
            "spark/sink/test_sink_write.py",
            "spark/source/test_source.py",
            "spark/audit/test_audit_damage.py",
            "spark/jobs/test_export_run.py",
        ),
        seconds=165.0,
    ),
    Proof(
        "lost-zookeeper",
        (
            "cluster/metadata/test_lost_zookeeper.py",
            "cluster/metadata/test_older_zookeeper.py",
            "cluster/storage/test_ledger_end.py",
        ),
        (
            "services/oncelog/metadata/restore",
            f"{CORE}/rebuild",
            f"{CORE}/era.py",
            "services/oncelog/metadata_store/copies",
            "services/oncelog/metadata_store/notes",
            "services/oncelog/metadata_store/session",
            "tests/records_proof",
        ),
        (
            "cluster/metadata/test_restore.py",
            "cluster/metadata/test_zookeeper_closed.py",
            "contract/stores/test_lost_zookeeper.py",
            "contract/restore/test_restore.py",
        ),
    ),
    Proof(
        "lost-disks",
        ("cluster/storage/test_lost_disks.py",),
        (f"{CORE}/repair", "services/oncelog/metadata/repair", *_DISK_ROOMS),
        ("cluster/storage/test_storage_faults.py", "contract/repair/test_repair.py"),
    ),
    Proof(
        "mirrors",
        tuple(f"effects/cluster/test_mirror_{which}.py" for which in ("compare", "cutover", "translate")),
        ("services/oncelog_effects", "services/oncelog/client"),
        ("effects/cluster/test_mirror.py", "effects/cluster/test_mirror_status.py"),
    ),
    Proof(
        "django",
        ("effects/contract/test_django.py",),
        ("services/oncelog_effects/django", "services/oncelog_effects/outbox"),
        ("effects/contract/test_outbox_database.py", "effects/contract/test_outbox_publish.py"),
    ),
    Proof(
        "starts",
        ("cluster/processes/test_starting.py",),
        ("services/oncelog/metadata_store/joining", "services/oncelog/runtime/process.py", "services/oncelog/rpc"),
        ("cluster/processes/test_standalone.py", "contract/stores/test_stores_starting.py"),
    ),
    Proof(
        "slow-clients",
        ("cluster/clients/test_unread_streams.py", "cluster/clients/test_ack_timeout.py"),
        ("services/oncelog/topic_owner", "services/oncelog/rpc", "services/oncelog/client", f"{CORE}/delivery"),
        ("contract/owner/test_stream_budget.py", "core/delivery/test_delivery_stories.py"),
    ),
    Proof(
        "forks",
        ("contract/sdk/test_client_fork_kinds.py",),
        (
            "requirements.lock",
            "services/oncelog/__init__.py",
            "services/oncelog/client",
            "services/oncelog/rpc/library.py",
            "services/oncelog/runtime/forks.py",
        ),
        ("contract/sdk/test_client_forks.py", "contract/process/test_fork_server.py"),
    ),
    Proof(
        "tools-of-the-tree",
        ("tidy/changed/test_changed.py", "tidy/measure/test_measure.py"),
        ("tests/tidy", "tests/suite", "services"),
        ("tidy/test_suite.py",),
    ),
    Proof(
        "tools-of-the-tests",
        ("surface/test_surface.py", "tidy/conduct/test_hang_watch.py", "tidy/conduct/test_leftovers.py"),
        ("pyproject.toml", "requirements.lock", "tests/conftest.py", "tests/surface", "tests/tidy/conduct"),
        ("tidy/test_suite.py", "tidy/test_house_rules.py"),
    ),
    *PROOFS_OF_DOORS,
    Proof(
        "new-seeds",
        (),
        (
            CORE,
            "services/oncelog/metadata/restore",
            "services/oncelog/verify",
            "services/oncelog_doors/core",
            "services/oncelog_doors/log_client",
            "tests/oracles",
            "tests/simulation",
        ),
        ("simulation/test_seeds.py", "simulation/test_mutants.py"),
        words=_new_seeds(500, "commit"),
        seconds=600.0,
    ),
    Proof(
        "verdicts",
        (),
        (f"{CORE}/publishing", f"{CORE}/topic", "services/oncelog/topic_owner/streams"),
        ("contract/owner/reference/test_reference_model.py",),
        words=("make", "--no-print-directory", "verdicts-proof", "STEPS=100000"),
        seconds=115.0,
    ),
)
