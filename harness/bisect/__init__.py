"""Finds the first bad commit: runs one case in the simulation with the code of many commits.

| module     | content                                                               |
|------------|-----------------------------------------------------------------------|
| repository | git: commits, temporary work trees, and git's own bisection           |
| at_commit  | one commit in its work tree: its interpreter, and the seeds of a case |
| search     | finds the first bad commit between a good and a bad one               |
"""
