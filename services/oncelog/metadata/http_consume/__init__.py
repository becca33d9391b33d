"""Consuming over HTTP: sessions that one replica keeps, and every replica reaches (`core.http_consume`)."""
