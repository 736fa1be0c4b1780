-- How many runs that did something have a history, and how many different ones are there?
SELECT COUNT(digest) AS histories, COUNT(DISTINCT digest) AS different
FROM judged
WHERE ops <> 0
