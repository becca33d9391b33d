"""What one consumer of Pulsar holds, and what its acknowledgements mean."""
