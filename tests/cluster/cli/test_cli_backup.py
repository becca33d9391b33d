"""`oncelog admin backup`: copies of ZooKeeper's records, made by a cluster of processes and checked without one."""

import json
from pathlib import Path

from oncelog.metadata_store.copies.copy_folder import SUFFIX, created_of
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import run_command
from tests.tidy.source import ROOT


def backup(cluster: Cluster, *words: str, code: int = 0) -> str:
    """What the command prints; of a failure its error."""
    done = run_command(cluster.url, cluster.admin_url, "admin", "backup", *words)
    assert done.returncode == code, done.stderr
    return (done.stderr if code else done.stdout).decode()


def test_a_copy_of_the_records_is_made_listed_and_verified(cluster: Cluster, tmp_path: Path) -> None:
    """Whole, and of the records that the cluster has; what has changed since is counted."""
    made = json.loads(backup(cluster, "create", "-o", "json"))
    assert made["name"] in [one["name"] for one in json.loads(backup(cluster, "list", "-o", "json"))["backups"]]
    assert made["name"] in backup(cluster, "list", "-o", "wide")
    file = tmp_path / "records"
    assert f"copied ZooKeeper's records to {file}" in backup(cluster, "create", "--to", str(file))
    assert file.stat().st_mode & 0o077 == 0
    shown = json.loads(backup(cluster, "verify", str(file), "-o", "json"))
    assert shown["encryption"] == "none: not authenticated"
    assert shown["records"]["cluster"] == 1
    assert shown["records"]["storage_cookies"] == made["records"]["storage_cookies"]
    run_command(cluster.url, cluster.admin_url, "admin", "tenants", "create", "copied")
    compared = json.loads(backup(cluster, "verify", str(file), "--against-cluster", "-o", "json"))
    assert compared["created_since"]["policies"] == 1
    assert compared["deleted_since"] == {}
    assert compared["same"] > 0
    half = tmp_path / "half"
    half.write_bytes(file.read_bytes()[:-20])
    assert "half a copy" in backup(cluster, "verify", str(half), code=1)
    assert "is not a copy" in backup(cluster, "verify", str(ROOT / "README.md"), code=1)


def test_a_directory_gets_copies_under_their_names_and_keeps_the_newest(cluster: Cluster, tmp_path: Path) -> None:
    """For a job that runs each day."""
    other = tmp_path / "notes.txt"
    other.write_text("")
    for _ in range(2):
        backup(cluster, "create", "--to", str(tmp_path), "--keep", "1")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names.pop() == other.name
    assert len(names) == 1
    assert all(created_of(name.removesuffix(SUFFIX)) for name in names)
    assert "--keep needs the directory" in backup(cluster, "create", "--keep", "1", code=1)
    assert "there is no directory" in backup(cluster, "create", "--to", f"{tmp_path}/none/", code=1)


def test_standard_output_gets_the_file_alone(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "piped"
    file.write_bytes(run_command(cluster.url, cluster.admin_url, "admin", "backup", "create", "--to", "-").stdout)
    assert json.loads(backup(cluster, "verify", str(file), "-o", "json"))["records"]["cluster"] == 1
