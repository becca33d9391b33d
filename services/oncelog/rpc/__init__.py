"""How bytes cross: the codec between messages and core values, status codes, server and channel."""
