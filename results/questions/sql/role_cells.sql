-- How many operations got no answer or were lost, by nemesis, phase and role of the node that was hit:
-- `a` of `n` operations, compared with `b` of `m` operations. `against` names the latter: operations of
-- the same runs and phase without the fault (`without`), while another node was hit (`other`), or in
-- the phase chaos (`chaos`). The rows have sums over runs, and sums of products for intervals.
-- `wide` reads the facts in one pass, and has one row per run and nemesis for all these comparisons.
WITH wide AS (
    SELECT j.population, e.run, e.nemesis,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role = 'leader' THEN e.bad ELSE 0 END) AS c_leader_bad,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role = 'leader' THEN e.n ELSE 0 END) AS c_leader,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role = 'other' THEN e.bad ELSE 0 END) AS c_other_bad,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role = 'other' THEN e.n ELSE 0 END) AS c_other,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role = 'unknown' THEN e.bad ELSE 0 END) AS c_unknown_bad,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role = 'unknown' THEN e.n ELSE 0 END) AS c_unknown,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role IS NULL THEN e.bad ELSE 0 END) AS c_without_bad,
           SUM(CASE WHEN e.phase = 'chaos' AND e.role IS NULL THEN e.n ELSE 0 END) AS c_without,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role = 'leader' THEN e.bad ELSE 0 END) AS h_leader_bad,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role = 'leader' THEN e.n ELSE 0 END) AS h_leader,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role = 'other' THEN e.bad ELSE 0 END) AS h_other_bad,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role = 'other' THEN e.n ELSE 0 END) AS h_other,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role = 'unknown' THEN e.bad ELSE 0 END) AS h_unknown_bad,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role = 'unknown' THEN e.n ELSE 0 END) AS h_unknown,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role IS NULL THEN e.bad ELSE 0 END) AS h_without_bad,
           SUM(CASE WHEN e.phase = 'heal-core' AND e.role IS NULL THEN e.n ELSE 0 END) AS h_without
    FROM exposure_by_role e
    JOIN judged j ON j.run = e.run
    GROUP BY j.population, e.run, e.nemesis
),
pairs AS (
    SELECT 'chaos' AS phase, 'leader' AS role, 'without' AS against
    UNION ALL SELECT 'chaos', 'other', 'without'
    UNION ALL SELECT 'chaos', 'unknown', 'without'
    UNION ALL SELECT 'heal-core', 'leader', 'without'
    UNION ALL SELECT 'heal-core', 'other', 'without'
    UNION ALL SELECT 'heal-core', 'unknown', 'without'
    UNION ALL SELECT 'chaos', 'leader', 'other'
    UNION ALL SELECT 'heal-core', 'leader', 'other'
    UNION ALL SELECT 'heal-core', 'leader', 'chaos'
    UNION ALL SELECT 'heal-core', 'other', 'chaos'
    UNION ALL SELECT 'heal-core', 'unknown', 'chaos'
),
paired AS (
    SELECT w.population, w.nemesis, p.phase, p.role, p.against,
           CASE CONCAT(p.phase, ' ', p.role)
               WHEN 'chaos leader' THEN w.c_leader_bad
               WHEN 'chaos other' THEN w.c_other_bad
               WHEN 'chaos unknown' THEN w.c_unknown_bad
               WHEN 'heal-core leader' THEN w.h_leader_bad
               WHEN 'heal-core other' THEN w.h_other_bad
               WHEN 'heal-core unknown' THEN w.h_unknown_bad
           END AS a,
           CASE CONCAT(p.phase, ' ', p.role)
               WHEN 'chaos leader' THEN w.c_leader
               WHEN 'chaos other' THEN w.c_other
               WHEN 'chaos unknown' THEN w.c_unknown
               WHEN 'heal-core leader' THEN w.h_leader
               WHEN 'heal-core other' THEN w.h_other
               WHEN 'heal-core unknown' THEN w.h_unknown
           END AS n,
           CASE CONCAT(p.against, ' ', CASE p.against WHEN 'chaos' THEN p.role ELSE p.phase END)
               WHEN 'without chaos' THEN w.c_without_bad
               WHEN 'without heal-core' THEN w.h_without_bad
               WHEN 'other chaos' THEN w.c_other_bad
               WHEN 'other heal-core' THEN w.h_other_bad
               WHEN 'chaos leader' THEN w.c_leader_bad
               WHEN 'chaos other' THEN w.c_other_bad
               WHEN 'chaos unknown' THEN w.c_unknown_bad
           END AS b,
           CASE CONCAT(p.against, ' ', CASE p.against WHEN 'chaos' THEN p.role ELSE p.phase END)
               WHEN 'without chaos' THEN w.c_without
               WHEN 'without heal-core' THEN w.h_without
               WHEN 'other chaos' THEN w.c_other
               WHEN 'other heal-core' THEN w.h_other
               WHEN 'chaos leader' THEN w.c_leader
               WHEN 'chaos other' THEN w.c_other
               WHEN 'chaos unknown' THEN w.c_unknown
           END AS m
    FROM wide w
    CROSS JOIN pairs p
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
WHERE n > 0 OR (against <> 'without' AND m > 0)
GROUP BY population, nemesis, phase, role, against
