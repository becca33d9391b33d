"""The addresses of a door, as the caller of a request reaches it: the host is the one that the caller has used, the
ports are those at which this door listens. So they need no setting; a proxy in front must keep the ports."""

from collections.abc import Mapping

from fastapi import Request

from oncelog.core.address import join_address


def brokers_of(request: Request) -> dict[str, str]:
    """{scheme: host:port}: `pulsar`, `pulsar+ssl`, and `http` or `https`, at which the request came."""
    host = request.url.hostname or ""
    ports: Mapping[str, int] = request.app.state.pulsar_ports
    here = request.url.scheme
    own = request.url.port or (443 if here == "https" else 80)
    return {scheme: join_address(host, port) for scheme, port in (*ports.items(), (here, own))}
