-- How long do acknowledged operations take, by run and kind?
SELECT population, value AS run, f, ok, p50_ns, p95_ns, p99_ns, p999_ns, max_ns
FROM percentiles
WHERE dimension = 'run'
ORDER BY run, f
