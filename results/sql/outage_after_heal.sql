-- Where a fault was healed during an outage, how long did the outage still go on? (nearest ranks)
WITH healed AS (
    SELECT run, nemesis, 'mutation' AS kind, mutation_outage_ns AS left_ns FROM faults WHERE healed
    UNION ALL
    SELECT run, nemesis, 'read' AS kind, read_outage_ns AS left_ns FROM faults WHERE healed
),
alike AS (
    SELECT j.population, h.nemesis, h.kind, h.left_ns
    FROM healed h
    JOIN judged j ON j.run = h.run
),
ranked AS (
    SELECT population, nemesis, kind, left_ns,
           ROW_NUMBER() OVER (PARTITION BY population, nemesis, kind ORDER BY left_ns) AS place,
           COUNT(*) OVER (PARTITION BY population, nemesis, kind) AS total
    FROM alike
    WHERE left_ns > 0
),
nearest AS (
    SELECT population, nemesis, kind,
           MIN(CASE WHEN place * 1000 >= total * 500 THEN left_ns END) AS p50_ns,
           MAX(left_ns) AS max_ns
    FROM ranked
    GROUP BY population, nemesis, kind
),
counted AS (
    SELECT population, nemesis, kind,
           COUNT(*) AS heals,
           COUNT(CASE WHEN left_ns > 0 THEN 1 END) AS in_outage,
           COUNT(CASE WHEN left_ns IS NULL THEN 1 END) AS never
    FROM alike
    GROUP BY population, nemesis, kind
)
SELECT c.population, c.nemesis, c.kind, c.heals, c.in_outage, c.never, p.p50_ns, p.max_ns
FROM counted c
LEFT JOIN nearest p
       ON p.population = c.population AND p.nemesis = c.nemesis AND p.kind = c.kind
ORDER BY c.population, c.nemesis, c.kind
