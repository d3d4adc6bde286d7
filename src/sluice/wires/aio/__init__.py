"""Implementations of the ports over asyncio."""
