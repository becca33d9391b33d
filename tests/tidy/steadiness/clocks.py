"""Steadiness, of clocks: that something does not happen is shown by what comes after it, not by a short wait.

On a busy machine nothing happens within a short wait, whatever the code does: such a test cannot fail there. A wait
that has to be short has a named constant, with a comment that says what a slow machine does to it. And a short time-out
of what is tested ends there before what the test does first: `UNBEATEN` says for each file why that changes nothing.
"""

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import Rule, Source, each

#: A literal wait between 0 and this is a breach. A wait of 0 is one turn of the event loop.
UNHURRIED_S = 30
#: {function: position of its time-out}; a name in front of it must be asyncio's.
WAITS = {"asyncio.wait": None, "asyncio.wait_for": 1, "asyncio.timeout": 0}
#: {method: its time-out, by position and name}, of events, threads, queues and consumers.
METHODS = {
    "wait": (0, "timeout"),
    "join": (0, "timeout"),
    "get": (None, "timeout"),
    "receive_batch": (None, "max_wait"),
}
#: `until` of less than a second; `tests/tidy/steadiness/machine.py` has the longer ones.
PROBES = {"until": 1, "until_sync": 1}
#: It tests that the deadline of `until` ends it.
TEST_OF_UNTIL = "tests/cluster/test_until.py"


def nothing_happens_is_not_a_short_wait(source: Source) -> Iterator[str]:
    """Wait for what comes after it on the same path, then assert that it has not happened."""
    if not (source.is_python and source.inside("tests")) or source.path == TEST_OF_UNTIL:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call):
            name, (given, bound) = ast.unparse(node.func), _time_outs(node)
            yield from (f"line {node.lineno}: {name} of {ast.unparse(one)} s" for one in given if _is_short(one, bound))


def _time_outs(call: ast.Call) -> tuple[list[ast.expr], float]:
    """Of a call that waits, and what is short for it."""
    name = ast.unparse(call.func)
    if name in WAITS or name in PROBES:
        position, names = {**WAITS, **PROBES}[name], {"timeout", "deadline_s"}
    elif isinstance(call.func, ast.Attribute) and call.func.attr in METHODS:
        position, named = METHODS[call.func.attr]
        names = {named}
    else:
        return [], 0
    given = [] if position is None else call.args[position : position + 1]
    given += [each.value for each in call.keywords if each.arg in names]
    return given, 1 if name in PROBES else UNHURRIED_S


def _is_short(node: ast.expr, bound: float) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < bound


#: A time-out of a component, by the name of its parameter.
TIME_OUT = re.compile(r"(^|_)(?<!stop_)(timeout|deadline|wait|expires|lease|fresh|stable|silence)(_s|_ms)?$")
SHORT_S = 3
#: {why a short time-out may end at any moment: files}, below tests/.
UNBEATEN = {
    "nothing answers or comes before it ends": (
        "cluster/metadata/test_metadata_lookup.py", "effects/contract/test_outbox_relay.py",
        "effects/contract/test_prove.py", "contract/node/test_inventory.py",
        "contract/owner/consuming/test_topic_owner_subscriptions.py", "contract/process/test_process.py",
        "contract/rest/admin/test_admin_bad_input.py", "contract/rpc/test_rpc_server.py",
        "contract/sdk/consuming/test_client_flush.py", "contract/sdk/consuming/test_client_reader.py",
        "contract/sdk/producing/test_client_producer.py", "contract/stores/test_kazoo_handler.py",
        "contract/stores/test_stores_joining.py", "contract/stores/test_stores_starting.py",
        "contract/stores/test_stores_zookeeper.py", "contract/eras/test_era_roots.py", "lab/test_child_process.py",
        "lab/test_chaos_runner.py", "cluster/clients/test_security.py",
    ),
    "what it limits needs no other process, and is ready before the loop looks at the clock": (
        "contract/owner/test_topic_owner_parts.py", "contract/owner/reading/test_topic_owner_waiting.py",
        "contract/rest/observing/test_dependencies.py",
    ),
    "the test tries again until it is answered in time": (
        "effects/effects_proof/seam_program.py", "effects/contract/file_kills.py",
        "contract/rest/admin/test_admin_body_room.py", "contract/rest/test_http_publish.py",
        "contract/sdk/consuming/test_client_consumer.py", "contract/sdk/test_client_sync.py",
        "contract/sdk/test_connecting.py", "contract/storage_client/test_ledgers_reader.py",
        "contract/stores/redis_process.py",
    ),
    "a lock that is free is taken at once, and one that is not stays so": ("effects/contract/test_file_store.py",),
    "the server ends only the transaction that stands still": ("effects/contract/test_sql_store.py",),
    "messages that come again too early are handled again": (
        "cluster/clients/test_ack_timeout.py", "contract/sdk/consuming/test_client_ack_timeout.py",
    ),
    "it is compared, or passed on, and nothing waits for it": (
        "contract/owner/ownership/test_topic_owner_hand_over.py", "contract/rpc/messages.py",
        "contract/sdk/test_sync_signatures.py",
    ),
    "times are compared with the least that they may be": (
        "contract/owner/ownership/test_topic_owner_stability.py",
    ),
}  # fmt: skip
_FOLDERS = ("tests/contract", "tests/cluster", "tests/doors", "tests/effects", "tests/lab", "tests/spark")
_UNBEATEN_FILES = {f"tests/{file}" for files in UNBEATEN.values() for file in files}


def time_outs_are_unhurried(source: Source) -> Iterator[str]:
    """It ends what is tested before the test has done what comes first, on a busy machine."""
    if not (source.is_python and source.inside(*_FOLDERS)):
        return
    found = list(_short_time_outs(source))
    if source.path not in _UNBEATEN_FILES:
        yield from found
    elif not found:
        yield "UNBEATEN names it, and it has no short time-out"


def _short_time_outs(source: Source) -> Iterator[str]:
    for node in source.nodes:
        for each_given in node.keywords if isinstance(node, ast.Call) else ():
            name, value = each_given.arg or "", each_given.value
            if TIME_OUT.search(name) and _is_short(value, SHORT_S * (1_000 if name.endswith("_ms") else 1)):
                yield f"line {value.lineno}: {name} of {ast.unparse(value)}"


RULES = (
    Rule(
        "time-outs are unhurried",
        each(time_outs_are_unhurried),
        (
            (Source("tests/contract/x.py", "await channel.call(FENCE, REQUEST, timeout_ms=300)"),),
            (Source("tests/cluster/x.py", "Reading(deadline_s=0.05)"),),
        ),
        (
            Source("tests/contract/x.py", "await channel.call(FENCE, REQUEST, timeout_ms=30_000)"),
            Source("tests/contract/x.py", "RestServer(app, stop_timeout_s=1)\nconsumer.nack(message, delay=0.3)"),
            Source("tests/contract/rpc/test_rpc_server.py", "await channel.call(FENCE, REQUEST, timeout_ms=50)"),
        ),
    ),
    Rule(
        "nothing happens is not a short wait",
        each(nothing_happens_is_not_a_short_wait),
        (
            (Source("tests/x.py", "await asyncio.wait({task}, timeout=0.3)"),),
            (Source("tests/x.py", "async with asyncio.timeout(0.2):\n    pass"),),
            (Source("tests/x.py", "await asyncio.wait_for(task, 5)"),),
            (Source("tests/x.py", "await until(task.done, 0.15)"),),
            (Source("tests/x.py", "assert not event.wait(0.5)"),),
            (Source("tests/x.py", "assert not await consumer.receive_batch(max_wait=0.1)"),),
        ),
        (
            Source("tests/x.py", "await asyncio.wait({task}, timeout=0)\nawait asyncio.wait({task}, timeout=GRACE_S)"),
            Source("tests/x.py", "async with asyncio.timeout(60):\n    await until(task.done, 30)"),
            Source("tests/x.py", "consumer.receive_batch(max_wait=0)\nthread.join(30)\nrecords.get('a', 5)"),
            Source("services/x.py", "await asyncio.wait({task}, timeout=0.3)"),
        ),
    ),
)
