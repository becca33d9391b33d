"""The SDK: asyncio first, a sync face over it."""
