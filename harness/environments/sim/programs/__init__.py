"""Unmodified asyncio programs as nodes of the simulation (`harness.nodes.program`).

A life of a node has its own copies of the program's modules and of the standard library's modules
with state (`modules`), and substitutes for modules that touch the world (`substitutes`, `files`).
Its loop has transports and servers over the simulated network (`stream_loop`).
"""
