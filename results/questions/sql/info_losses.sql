-- Which operations were lost to info under which nemesis? An operation under two nemeses counts twice.
SELECT j.population, i.nemesis, i.f, CAST(SUM(i.n) AS BIGINT) AS n, COUNT(DISTINCT i.run) AS runs
FROM infos i
JOIN judged j ON j.run = i.run
GROUP BY j.population, i.nemesis, i.f
ORDER BY j.population, i.nemesis, i.f
