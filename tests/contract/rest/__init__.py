"""REST, HTTP publish and the gateway."""
