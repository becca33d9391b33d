"""`oncelog.connect`: the function that an asynchronous program begins with."""

import os
from pathlib import Path

from oncelog.client.client import OPERATION_TIMEOUT_S, AsyncClient
from oncelog.client.opening import opening
from oncelog.client.values.arguments import check_type
from oncelog.client.values.process import check_threads
from oncelog.core.formats.chunks import CHUNKED_BYTES_DEFAULT
from oncelog.runtime.credentials import Token
from oncelog.runtime.memory import keep_freed_memory
from oncelog.runtime.variables import log_unknown


@opening
async def connect(
    url: str,
    *,
    token: Token | None = None,
    tls_ca_file: Path | str | None = None,
    allow_plaintext_token: bool = False,
    operation_timeout: float | None = OPERATION_TIMEOUT_S,
    storage_reads: bool = True,
    max_message_bytes: int = CHUNKED_BYTES_DEFAULT,
    keep_memory: bool = True,
) -> AsyncClient:
    """Return a client of a cluster: `async with connect(url) as client`, or `client = await connect(url)`.

    Nothing is sent yet: an unreachable cluster shows at the first producer or reader. The first call of a process logs
    a warning about misspelt variables of the environment (ONCELOG_ULR).

    Args:
        url: the cluster's metadata services, "oncelog://host:port[,host:port]"; the default port is 6650.
            oncelog+tls:// for a cluster with TLS. oncelog+proxy:// and oncelog+proxy+tls:// for clients that reach only
            the metadata services, which then forward everything to the topic owners.
        token: the token as a string; the pathlib.Path of a file that holds it, read again when it changes; or a
            function that returns it, called for each call and stream.
        tls_ca_file: PEM file of the cluster's CA. None: the system's CAs.
        allow_plaintext_token: allow sending the token over an unencrypted connection to a remote host.
        operation_timeout: seconds for opening a producer, reader or consumer, for a seek, for `last_message_id` and for
            closing. None: no limit.
        storage_reads: read many older messages from storage nodes, where the cluster offers it and they are reached.
            False: everything comes through topic owners.
        max_message_bytes: of a message in chunks (`create_producer(chunking=True)`) that readers and consumers return,
            0 to 1 GiB; the client needs twice as much memory for one. Larger ones raise MessageTooLarge.
        keep_memory: let this process keep freed memory for the next messages, up to 64 MiB of each heap, instead of
            returning it to the system at once. This concerns all memory of the process, needs glibc, and is done once,
            by the first client that has it. It is not done if the environment has one of glibc's own settings for that,
            such as MALLOC_TRIM_THRESHOLD_.

    Raises RuntimeError, before anything else, where gevent or eventlet has replaced Python's threads. Raises
    InvalidArgument for a wrong URL, a file that cannot be read, or a token that would be sent unencrypted.
    """
    check_threads()
    check_type("keep_memory", keep_memory, bool, "True or False")
    log_unknown(os.environ)
    client = AsyncClient(
        url,
        token=token,
        tls_ca_file=tls_ca_file,
        allow_plaintext_token=allow_plaintext_token,
        operation_timeout=operation_timeout,
        storage_reads=storage_reads,
        max_message_bytes=max_message_bytes,
    )
    if keep_memory:
        keep_freed_memory()
    return client
