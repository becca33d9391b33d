"""How applications run functions whose effects happen once: a program until a signal, its health port, or a loop."""
