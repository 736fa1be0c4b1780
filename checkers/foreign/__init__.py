"""Models of histories that others recorded: each reads ops in its vocabulary and judges them.

The models are plug-ins (`harness.plugins.HistoryModel`), which the options `--model` and `--elle`
of `harness check` find by name. Your own packages can add models.
"""
