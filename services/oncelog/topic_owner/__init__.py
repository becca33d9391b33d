"""The service that owns topics: it performs the effects of the topic cores."""
