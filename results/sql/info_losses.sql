-- Which operations were lost to info, and under which nemesis? One under two faults counts twice.
SELECT nemesis, f, CAST(SUM(n) AS BIGINT) AS n, COUNT(DISTINCT run) AS runs
FROM infos
GROUP BY nemesis, f
ORDER BY nemesis, f
