-- How many runs with a bug switched on are invalid, and which run, by seed, is the first?
-- A population with several bugs counts for each of its bugs.
WITH ordered AS (
    SELECT t.value AS bug, j.population, j.run, j.verdict,
           ROW_NUMBER() OVER (PARTITION BY t.value, j.population ORDER BY j.seed, j.run) AS place,
           CAST(SUM(j.length_ns) OVER (
               PARTITION BY t.value, j.population ORDER BY j.seed, j.run
           ) AS BIGINT) AS upto_ns
    FROM judged j
    JOIN traits t ON t.run = j.run AND t.trait = 'bug'
),
counted AS (
    SELECT bug, population,
           COUNT(*) AS runs,
           COUNT(CASE WHEN verdict = 'invalid' THEN 1 END) AS detected,
           COUNT(CASE WHEN verdict = 'unknown' THEN 1 END) AS unknown,
           MAX(upto_ns) AS length_ns,
           MIN(CASE WHEN verdict = 'invalid' THEN place END) AS first_place
    FROM ordered
    GROUP BY bug, population
)
SELECT c.bug, c.population, c.runs, c.detected, c.unknown, c.length_ns,
       c.first_place AS runs_to_first,
       o.upto_ns AS ns_to_first,
       o.run AS first_run
FROM counted c
LEFT JOIN ordered o
       ON o.bug = c.bug AND o.population = c.population AND o.place = c.first_place
ORDER BY c.bug, c.population
