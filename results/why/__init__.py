"""The causes of a failed run, and the time from which the failure was inevitable.

`harness why` tries variants of a failing case in the simulation, each with some tens of seeds.

| module   | content                                                                    |
|----------|----------------------------------------------------------------------------|
| answer   | the answer as data, and its file `why.json`                                |
| variants | the case without each fault, group of operations, knob, option and bug     |
| causes   | the rates of the variants, and their comparison with the rate of the case  |
| timeline | the rate of the failure along the run's time, from runs with an equal past |
| search   | the whole search: the failure to explain, both parts, progress             |
| words    | the answer as text                                                         |
| drawing  | the answer as a drawing in one HTML file                                   |
| verb     | the command line                                                           |
"""
