-- How long did outages continue after a heal? Histograms, which add up like latencies.
-- `ns` is the middle of a latency bucket (harness.store.buckets); 0: there was no outage at the heal;
-- null: the outage never ended.
WITH healed AS (
    SELECT run, nemesis, 'mutation' AS kind, mutation_outage_ns AS left_ns FROM faults WHERE healed
    UNION ALL
    SELECT run, nemesis, 'read' AS kind, read_outage_ns AS left_ns FROM faults WHERE healed
),
measured AS (
    SELECT j.population, h.nemesis, h.kind, h.left_ns,
           CAST(CASE WHEN h.left_ns < 32 THEN 0 ELSE LENGTH(BIN(h.left_ns)) - 6 END AS INT) AS shift
    FROM healed h
    JOIN judged j ON j.run = h.run
)
SELECT population, nemesis, kind,
       ((left_ns >> shift) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1) AS ns,
       COUNT(*) AS n,
       MAX(left_ns) AS most_ns
FROM measured
GROUP BY population, nemesis, kind, ((left_ns >> shift) << shift) + ((CAST(1 AS BIGINT) << shift) >> 1)
