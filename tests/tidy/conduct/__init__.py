"""How each test behaves while it runs: it ends, and leaves nothing behind. Plugins of pytest, and their tests."""
