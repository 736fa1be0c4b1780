-- How many acknowledged operations fell into each latency bucket (harness.store.buckets), by kind and
-- by one more dimension? The histograms of several runs add up.
WITH fine AS (
    SELECT j.population, o.f, o.active, o.phase, COALESCE(o.node, '') AS node,
           COALESCE(j.day, '') AS day, COALESCE(j.code, '') AS code, o.lat_bucket,
           CAST(SUM(o.n) AS BIGINT) AS n
    FROM ops o
    JOIN judged j ON j.run = o.run
    WHERE o.type = 'ok' AND o.lat_bucket IS NOT NULL
    GROUP BY j.population, o.f, o.active, o.phase, COALESCE(o.node, ''), COALESCE(j.day, ''),
             COALESCE(j.code, ''), o.lat_bucket
)
SELECT population, f,
       CASE WHEN GROUPING(active) = 0 THEN 'active' WHEN GROUPING(phase) = 0 THEN 'phase'
            WHEN GROUPING(node) = 0 THEN 'node' WHEN GROUPING(day) = 0 THEN 'day'
            WHEN GROUPING(code) = 0 THEN 'code' ELSE 'f' END AS dimension,
       COALESCE(active, phase, node, day, code, '') AS value,
       lat_bucket, CAST(SUM(n) AS BIGINT) AS n
FROM fine
GROUP BY GROUPING SETS (
    (population, f, lat_bucket), (population, f, lat_bucket, active),
    (population, f, lat_bucket, phase), (population, f, lat_bucket, node),
    (population, f, lat_bucket, day), (population, f, lat_bucket, code)
)
