"""The SDK: what applications import, by way of `import oncelog`. asyncio first; `sync` is the same for threads."""
