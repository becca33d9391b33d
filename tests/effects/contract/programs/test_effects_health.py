"""What the health port of a program with effects says about a function that never returns, and one that fails."""

import asyncio
import json
import re
import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from sqlalchemy import create_engine

from oncelog_effects import SqlEffects, process
from oncelog_effects.programs.monitoring import monitored
from oncelog_effects.status import SourceStatus

pytestmark = pytest.mark.asyncio


@process("orders", subscription="billing", effects=SqlEffects(create_engine("sqlite://")))
def book(message: object, connection: object) -> None: ...


async def asked(port: int | None, path: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            return error.code, json.loads(error.read())

    return await asyncio.to_thread(ask)


async def test_stalled_function_fails_livez_and_trouble_readyz() -> None:
    """Only if the caller has said how long a function may run."""
    status = book.statuses["public/default/orders"] = SourceStatus("public/default/orders", "billing", active=True)
    status.began_at = time.time() - 100
    async with monitored([book], "127.0.0.1", 0, 60.0) as port, monitored([book], "127.0.0.1", 0, None) as other:
        code, body = await asked(port, "/livez")
        assert code == 503
        assert re.search(r"billing has been running for 1\d\d s", body["reasons"]["function"])
        assert [(await asked(other, path))[0] for path in ("/livez", "/readyz")] == [200, 200]
        status.trouble = "ValueError: no total"
        code, body = await asked(other, "/readyz")
        assert (code, body["reasons"]["effects"]) == (503, "billing of public/default/orders: ValueError: no total")
        [shown] = (await asked(other, "/status"))[1]
        assert shown["running_s"] >= 100
