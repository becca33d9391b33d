"""The REST interface for administration: Pulsar's paths under /admin/v2 where they exist, RFC 9457 errors, OpenAPI."""
