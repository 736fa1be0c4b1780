-- How many changes of leader did runs see? The first leader of a run is none.
SELECT population,
       COUNT(*) AS runs,
       CAST(SUM(elections) AS BIGINT) AS elections,
       MIN(elections) AS least,
       MAX(elections) AS most,
       COUNT(CASE WHEN elections = 0 THEN 1 END) AS runs_without
FROM judged
GROUP BY population
ORDER BY population
