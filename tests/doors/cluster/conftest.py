"""A cluster with TLS and tokens for all modules, so each topic and namespace is of one test; and a door for each."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from oncelog.runtime.tls.certificates import KeyPair, new_ca
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.conftest import free_port
from tests.contract.process.security_world import auth_environment, bearer, renew
from tests.doors.cluster.door_program import DoorProgram

__all__ = ["NewDoor", "authority", "cluster", "door", "files", "free_port", "new_door", "variables"]

NewDoor = Callable[..., AbstractContextManager[DoorProgram]]

#: In the certificate of the services and of the doors.
NAMES = ("127.0.0.1", "localhost")
_RIGHTS = "/admin/v2/namespaces/public/default/permissions"


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doors")


@pytest.fixture(scope="package")
def authority() -> KeyPair:
    """Signs the certificates of the cluster."""
    return new_ca()


@pytest.fixture(scope="package")
def variables(files: Path, authority: KeyPair) -> dict[str, str]:
    (files / "ca.crt").write_bytes(authority.certificate)
    renew(files, authority, names=NAMES)
    tls = {"CERTIFICATE": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"}
    return {f"ONCELOG_TLS_{name}_FILE": str(files / file) for name, file in tls.items()} | auth_environment(files)


@pytest.fixture(scope="package")
def cluster(files: Path, variables: dict[str, str]) -> Iterator[Cluster]:
    """With one process of each kind. The roles importer and other may produce, billing may consume."""
    settings = {name.removeprefix("ONCELOG_").lower(): value for name, value in variables.items()}
    shape = {"storage_nodes": 1, "owners": 1, "metadata": 1}
    with Cluster.running(files, **shape, **settings) as own:  # type: ignore[arg-type]
        own.rest = {"headers": bearer("root"), "verify": ssl.create_default_context(cafile=str(files / "ca.crt"))}
        with httpx.Client(base_url=own.admin_url, trust_env=False, **own.rest) as rest:
            for role, right in (("importer", "produce"), ("other", "produce"), ("billing", "consume")):
                rest.post(f"{_RIGHTS}/{role}", json=[right]).raise_for_status()
        yield own


@pytest.fixture(scope="package")
def new_door(cluster: Cluster, variables: dict[str, str]) -> NewDoor:
    """Makes doors in front of the cluster, with TLS and without. more: settings, by their names in the code."""

    def made(*arguments: str, **more: str) -> AbstractContextManager[DoorProgram]:
        listening = ("--pulsar", "127.0.0.1:0", "--pulsar-tls", "127.0.0.1:0")
        settings = variables | {f"ONCELOG_{name.upper()}": value for name, value in more.items()}
        return DoorProgram.running("--url", cluster.url, *(arguments or listening), settings=settings)

    return made


@pytest.fixture(scope="module")
def door(new_door: NewDoor) -> Iterator[DoorProgram]:
    with new_door() as own:
        yield own
