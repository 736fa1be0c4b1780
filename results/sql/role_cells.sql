-- Operations that were not answered or were lost, by nemesis, phase and role of what it hit: `a` of
-- `n`, against `b` of `m`. `against` says which these are: those of the same runs and phase without
-- the fault; or for the leader, those while another node was hit; or for the phase after chaos,
-- those in chaos. Sums over runs, of products too: the run is the unit of every interval.
WITH cells AS (
    SELECT j.population, e.run, e.nemesis, e.phase, e.role, e.bad, e.n
    FROM exposure_by_role e
    JOIN judged j ON j.run = e.run
),
without AS (
    SELECT run, nemesis, phase, n AS m, bad AS b FROM cells WHERE role IS NULL
),
paired AS (
    SELECT c.population, c.nemesis, c.phase, c.role, 'without' AS against,
           c.bad AS a, c.n AS n, COALESCE(w.b, 0) AS b, COALESCE(w.m, 0) AS m
    FROM cells c
    LEFT JOIN without w ON w.run = c.run AND w.nemesis = c.nemesis AND w.phase = c.phase
    WHERE c.role IS NOT NULL
    UNION ALL
    SELECT population, nemesis, phase, 'leader', 'other',
           SUM(CASE role WHEN 'leader' THEN bad ELSE 0 END),
           SUM(CASE role WHEN 'leader' THEN n ELSE 0 END),
           SUM(CASE role WHEN 'other' THEN bad ELSE 0 END),
           SUM(CASE role WHEN 'other' THEN n ELSE 0 END)
    FROM cells
    WHERE role IN ('leader', 'other')
    GROUP BY population, run, nemesis, phase
    UNION ALL
    SELECT population, nemesis, 'heal-core', role, 'chaos',
           SUM(CASE phase WHEN 'heal-core' THEN bad ELSE 0 END),
           SUM(CASE phase WHEN 'heal-core' THEN n ELSE 0 END),
           SUM(CASE phase WHEN 'chaos' THEN bad ELSE 0 END),
           SUM(CASE phase WHEN 'chaos' THEN n ELSE 0 END)
    FROM cells
    WHERE role IS NOT NULL
    GROUP BY population, run, nemesis, role
)
SELECT population, nemesis, phase, role, against,
       COUNT(*) AS runs,
       CAST(SUM(a) AS BIGINT) AS a, CAST(SUM(n) AS BIGINT) AS n,
       CAST(SUM(b) AS BIGINT) AS b, CAST(SUM(m) AS BIGINT) AS m,
       CAST(SUM(a * a) AS BIGINT) AS aa, CAST(SUM(a * n) AS BIGINT) AS an,
       CAST(SUM(a * b) AS BIGINT) AS ab, CAST(SUM(a * m) AS BIGINT) AS am,
       CAST(SUM(n * n) AS BIGINT) AS nn, CAST(SUM(n * b) AS BIGINT) AS nb,
       CAST(SUM(n * m) AS BIGINT) AS nm, CAST(SUM(b * b) AS BIGINT) AS bb,
       CAST(SUM(b * m) AS BIGINT) AS bm, CAST(SUM(m * m) AS BIGINT) AS mm
FROM paired
GROUP BY population, nemesis, phase, role, against
HAVING SUM(n) > 0 AND SUM(m) > 0
ORDER BY population, nemesis, phase, role, against
