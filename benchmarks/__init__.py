"""What awl takes, beside its floors and other programs.

`uv run --group bench python -m benchmarks` runs all; a module a measure, each with a
`measure(quick)` that gives `Found`. What is compared runs in turns, in one run; what is given are
medians.
"""
