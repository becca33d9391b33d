"""The admin REST interface, /admin/v2/…: Pulsar's paths where they exist, problem bodies, OpenAPI."""
