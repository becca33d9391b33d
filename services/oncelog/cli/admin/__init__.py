"""`oncelog admin`: namespaces, topics and the cluster, over the REST interface of a metadata service."""
