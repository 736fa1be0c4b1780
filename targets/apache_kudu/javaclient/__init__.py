"""Kudu's own Java client, which drives real or bundled servers (`--client java`)."""
