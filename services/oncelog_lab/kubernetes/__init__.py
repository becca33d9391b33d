"""ClusterAccess to a cluster through kubectl, and the objects of a release there."""
