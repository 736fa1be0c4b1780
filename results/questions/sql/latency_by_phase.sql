-- How long do acknowledged operations take, by kind and phase?
SELECT population, value AS phase, f, ok, p50_ns, p95_ns, p99_ns, p999_ns, max_ns
FROM percentiles
WHERE dimension = 'phase'
ORDER BY population, phase, f
