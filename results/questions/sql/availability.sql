-- How long was the target unavailable in the chaos phase, with and without a fault of each nemesis?
WITH both_ways AS (
    SELECT population, nemesis, TRUE AS active, outcome, runs_with AS runs, n AS ns, a AS down_ns FROM downtime_cells
    UNION ALL
    SELECT population, nemesis, FALSE AS active, outcome, runs_without, m, b FROM downtime_cells
)
SELECT population, nemesis, active,
       MAX(runs) AS runs,
       MAX(ns) AS ns,
       MAX(CASE WHEN outcome = 'mutations down' THEN down_ns END) AS mutation_down_ns,
       MAX(CASE WHEN outcome = 'reads down' THEN down_ns END) AS read_down_ns
FROM both_ways
WHERE runs > 0
GROUP BY population, nemesis, active
ORDER BY population, nemesis, active
