"""What `pulsar-admin` asks, in terms of the REST of this cluster."""
