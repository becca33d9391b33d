"""`oncelog admin`: administers namespaces, topics and the cluster through the REST interface."""
