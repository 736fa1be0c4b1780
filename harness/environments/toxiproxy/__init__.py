"""A link proxy with Toxiproxy's HTTP API, and a typed client for it and the real one.

Start it with `python -m harness.environments.toxiproxy --listen HOST:PORT`. It follows
https://github.com/Shopify/toxiproxy (v2.12.0; one test suite checks the answers and the data path
of both servers) and adds features that a chaos harness needs and upstream lacks:

* repeatable randomness: `--seed` gives every connection and toxic its own stream of random numbers
  (upstream's flag builds a generator that nothing uses);
* the toxic `blackhole`, a cut: it swallows bytes *and* the end of a connection until it is removed,
  and then resets only the connections that lost something (upstream's most similar toxic,
  `timeout`, lets the end of a connection through and closes every connection when removed);
* `POST /proxies/{proxy}/reset`, which resets and counts the open connections;
* `POST /addresses`, one listening address for many callers: the server identifies each caller by
  its socket and passes the connection to the caller's own proxy;
* live counters in `/metrics`, with swallowed bytes (upstream counts at the end of a connection,
  which is too late to know whether a fault has had an effect).
"""
