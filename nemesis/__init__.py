"""Nemeses: one small file a fault family, aimed by role at the moment of the fault."""
