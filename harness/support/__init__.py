"""Tools that know nothing about runs: files, processes, HTTP, interrupts."""
