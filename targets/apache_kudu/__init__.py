"""Real Kudu: the masters and tablet servers that Apache releases, driven by their own RPCs."""
