-- Latencies of acknowledged operations by population, day and code, as histograms that merge:
-- add up `n` over whatever rows are wanted, and take nearest ranks of `ns`.
-- A base table: later files read it under the name `dated_latency_cells`.
SELECT j.population, j.day, j.code, l.f, l.ns, CAST(SUM(l.n) AS BIGINT) AS n
FROM latencies l
JOIN judged j ON j.run = l.run
GROUP BY j.population, j.day, j.code, l.f, l.ns
ORDER BY j.population, COALESCE(j.day, ''), COALESCE(j.code, ''), l.f, l.ns
