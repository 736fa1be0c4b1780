"""Finds the causes of a failed run, and the time from which its failure was inevitable.

`harness why` runs variants of a failing case in the simulation, each with some dozens of seeds.

| module   | content                                                                    |
|----------|----------------------------------------------------------------------------|
| answer   | the answer as data, and its file `why.json`                                |
| variants | variants of the case, each without one fault, knob, option, bug, ...       |
| causes   | the rates of the variants, and their comparison with the rate of the case  |
| timeline | the failure rate over the run's time, from runs with the same past         |
| search   | the whole search for causes and for the time, with its progress            |
| words    | the answer as text                                                         |
| drawing  | the answer as a drawing in one HTML file                                   |
| verb     | the command line                                                           |
"""
