"""The pod grouper: which PodGroup and which of its subgroups a pod belongs to.

Pure: `metadata` (input and result of a grouper), `kinds` (one grouper a kind of workload), `defaults` (what all kinds
share), `writes` (from the result to writes), `segments` and `constraints` (subgroups and topology).
With input and output: `owners` (from a pod to the workload at the top), `service` (the loop).
"""
