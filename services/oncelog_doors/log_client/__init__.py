"""The cluster behind a door, through the SDK: the door is one of its clients."""
