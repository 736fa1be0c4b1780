"""Tools that know nothing of runs: files, processes, HTTP, interrupts."""
