-- How many changes of leader did runs see? The first leader of a run is no change.
SELECT population,
       CAST(SUM(runs) AS BIGINT) AS runs,
       CAST(SUM(elections) AS BIGINT) AS elections,
       MIN(least) AS least,
       MAX(most) AS most,
       CAST(SUM(runs_without) AS BIGINT) AS runs_without
FROM run_cells
GROUP BY population
ORDER BY population
