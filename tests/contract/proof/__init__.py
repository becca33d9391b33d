"""The online proof of a topic, over storage nodes in memory and a topic owner that says what the test wants."""
