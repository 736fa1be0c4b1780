-- How long do acknowledged operations take, by label and kind?
SELECT value AS label, f, ok, p50_ns, p95_ns, p99_ns, p999_ns, max_ns
FROM percentiles
WHERE dimension = 'label'
ORDER BY label, f
