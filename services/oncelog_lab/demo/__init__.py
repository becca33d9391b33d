"""`oncelog demo`: publishes a file while processes are killed, and compares the topic with it line by line."""
