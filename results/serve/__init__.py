"""The command `harness serve`, which shows a store or a lake in the browser.

| module      | content                                                                         |
|-------------|---------------------------------------------------------------------------------|
| verb        | the command line                                                                |
| server      | sockets and HTTP, and the protection against other users and foreign pages      |
| routes      | the page for each address                                                       |
| paths       | opens files below a folder, without ever following links                        |
| query       | filters and orders of lists, as SQL conditions                                  |
| run_rows    | the row of a run, and the SQL that presents finished runs as a report's tables  |
| runs        | all runs as a table in DuckDB's memory, kept up to date                         |
| run_folders | the folder of one run: in its store, or rebuilt from the rows of a lake         |
| library     | the data of pages: all runs, and the verdicts, numbers and files of each run    |
| pages       | the pages that show the list of runs, one run, and two runs side by side        |
| group_pages | the pages that show the verdict matrix, the trends, and two labels side by side |
| groups      | counts for group pages, and the report's questions about the runs on a page     |
| compare     | differences of two runs                                                         |
| archive     | a run as a zip file                                                             |
| render      | templates, which escape all text                                                |

The server only reads, with two exceptions. It updates the lake of a store from the store's run
folders. And on the first request for a run's `report.html` or `trace.json`, it makes this file in
the run's folder, like `harness run`.
"""
