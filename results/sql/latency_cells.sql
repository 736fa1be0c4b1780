-- Latencies of acknowledged operations as histograms that add up: by kind and one more dimension,
-- how many fell into each bucket (harness.store.buckets)?
WITH fine AS (
    SELECT j.population, o.f, o.active, o.phase, COALESCE(o.node, '') AS node, o.lat_bucket,
           CAST(SUM(o.n) AS BIGINT) AS n
    FROM ops o
    JOIN judged j ON j.run = o.run
    WHERE o.type = 'ok' AND o.lat_bucket IS NOT NULL
    GROUP BY j.population, o.f, o.active, o.phase, COALESCE(o.node, ''), o.lat_bucket
)
SELECT population, f,
       CASE WHEN GROUPING(active) = 0 THEN 'active' WHEN GROUPING(phase) = 0 THEN 'phase'
            WHEN GROUPING(node) = 0 THEN 'node' ELSE 'f' END AS dimension,
       COALESCE(active, phase, node, '') AS value,
       lat_bucket, CAST(SUM(n) AS BIGINT) AS n
FROM fine
GROUP BY GROUPING SETS (
    (population, f, lat_bucket), (population, f, lat_bucket, active),
    (population, f, lat_bucket, phase), (population, f, lat_bucket, node)
)
