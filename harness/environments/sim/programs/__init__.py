"""Unmodified asyncio programs as nodes of the simulation (`harness.nodes.program`).

A *life* is the time from a start of the node to its end. Each life has its own copies of the
program's modules and of standard library modules with state (`modules`), and substitutes for
modules that touch the world (`substitutes`, `files`). Its loop offers transports and servers on the
simulated network (`stream_loop`).
"""
