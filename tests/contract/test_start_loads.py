"""What a start loads: nothing that a service without tokens and without Redis does not need."""

import subprocess
import sys

HEAVY = ("cryptography", "jwt", "redis")
SERVICES = ("oncelog.metadata.service", "oncelog.topic_owner.owner", "oncelog.log_storage.storage_process")


def loaded_by(*modules: str) -> set[str]:
    """Which of the heavy packages are loaded with these modules, in a process of their own."""
    code = f"import sys, {', '.join(modules)}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_services_load_neither_cryptography_nor_redis_before_they_are_asked_for() -> None:
    """They are a third of what a start costs, and a process that died is missed until it is there again."""
    assert loaded_by(*SERVICES) == set()


def test_tokens_and_redis_do_load_them() -> None:
    """The control."""
    assert loaded_by("oncelog.runtime.tokens", "oncelog.stores.idempotency_store") == set(HEAVY)
