"""The REST port for `pulsar-admin` and for look-ups over HTTP."""
