"""The bytes of Pulsar's binary protocol, and connections that speak it."""
