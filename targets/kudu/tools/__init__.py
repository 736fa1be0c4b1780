"""The command-line tools of the bundled target, after Kudu's `kudu`: what they look at and say."""
