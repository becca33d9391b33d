"""What the SDK takes and returns: arguments, messages, results."""
