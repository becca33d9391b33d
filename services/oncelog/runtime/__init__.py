"""How a process lives: settings, telemetry, child processes, shutdown."""
