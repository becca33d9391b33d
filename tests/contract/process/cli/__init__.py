"""Commands as a user meets them: their help, what they say about the environment, and views of a cluster."""
