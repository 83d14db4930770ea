"""Tools of developers: recorded cases, comparison with KAI, benchmarks, soak runs, faults on purpose."""
