-- How long do acknowledged operations take, by kind and by the nemeses active at their start?
SELECT population, value AS active, f, ok, p50_ns, p95_ns, p99_ns, p999_ns, max_ns
FROM percentiles
WHERE dimension = 'active'
ORDER BY population, active, f
