"""Programs with effects that end or stop at a named step, and what their databases have in the end."""
