"""Kudu's own Java client, as one of the clients of real Kudu (`--client java`)."""
