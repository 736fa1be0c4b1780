"""Tablets on tablet servers: heartbeats, reports, placement and re-replication."""
