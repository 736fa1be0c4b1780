"""Models of histories that other tools recorded. Each model reads ops in its own vocabulary.

The models are plug-ins (`harness.plugins.HistoryModel`), which the options `--model` and `--elle`
of `harness check` find by name. Your own packages can add models.
"""
