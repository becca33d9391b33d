"""Coordination of the cluster: topic lookup, placement on topic owners, failure detection, balancing and deletion."""
