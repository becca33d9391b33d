"""What all processes share: settings, tokens, certificates, health, logs, traces."""
