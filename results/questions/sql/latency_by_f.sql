-- How long do acknowledged operations take, by kind?
SELECT population, f, ok, p50_ns, p95_ns, p99_ns, p999_ns, max_ns
FROM percentiles
WHERE dimension = 'f'
ORDER BY population, f
