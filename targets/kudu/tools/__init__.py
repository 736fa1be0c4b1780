"""The command-line tool of the bundled target, after Kudu's `kudu`."""
