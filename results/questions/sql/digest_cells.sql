-- How many runs with operations have a history, and how many different histories are there?
SELECT COUNT(digest) AS histories, COUNT(DISTINCT digest) AS different
FROM judged
WHERE ops <> 0
