"""`harness serve`: a store or a lake in the browser.

| module      | content                                                                         |
|-------------|---------------------------------------------------------------------------------|
| verb        | the command line                                                                |
| server      | sockets and HTTP, and the protection against strangers                          |
| routes      | the page for each address                                                       |
| paths       | files below a folder, links never followed                                      |
| query       | filters and orders of lists, as SQL conditions                                  |
| run_rows    | the row of a run, and finished runs as the tables of a report                   |
| runs        | all runs as a table in DuckDB's memory, kept up to date                         |
| run_folders | the folder of one run: in its store, or rebuilt from the rows of a lake         |
| library     | the data of pages: all runs; verdicts, numbers, files and artefacts of a run    |
| pages       | the list, a run, two runs side by side                                          |
| group_pages | the verdict matrix, the trends, two labels side by side                         |
| groups      | counts for these pages, and the report's questions about the runs of a page     |
| compare     | differences of two runs                                                         |
| archive     | a run as a zip file                                                             |
| render      | templates, which escape all text                                                |

The server only reads, with two exceptions. On the first request for the `report.html` or
`trace.json` of a run, it makes the file in the run's folder, like `harness run`. And it updates the
lake of a store from its run folders.
"""
