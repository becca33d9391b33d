"""The synchronous API: the client, producer, reader, search and consumer for code without an event loop."""

from oncelog.client.sync.client import Client
from oncelog.client.sync.consumer import Consumer
from oncelog.client.sync.producer import Producer
from oncelog.client.sync.reader import Reader
from oncelog.client.sync.search import Search

__all__ = ["Client", "Consumer", "Producer", "Reader", "Search"]
