-- How long do acknowledged operations take, by kind and by the node that answered?
SELECT population, value AS node, f, ok, p50_ns, p95_ns, p99_ns, p999_ns, max_ns
FROM percentiles
WHERE dimension = 'node'
ORDER BY population, node, f
