"""Unmodified asyncio programs as nodes of the simulation (`harness.nodes.program`).

A life of a node has its own copies of the program's modules and of the standard library's modules
with state (`modules`), and stand-ins for those that touch the world (`stand_ins`, `files`). Its
loop has transports and servers over the simulated network (`stream_loop`).
"""
