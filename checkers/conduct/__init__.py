"""How the system behaved: liveness, crashes, bounds and statistics."""
