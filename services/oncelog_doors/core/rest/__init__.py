"""What `pulsar-admin` asks and is answered, in terms of this cluster's REST. It computes only."""
