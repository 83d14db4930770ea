"""Developer tools: recorded cases, comparison with KAI, benchmarks, soak runs, fault injection."""
