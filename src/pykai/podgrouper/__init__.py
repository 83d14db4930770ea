"""The pod grouper: which PodGroup and which of its subgroups a pod belongs to.

Pure: `metadata` (what a grouper is given and what it answers), `kinds` (one grouper a kind of workload), `defaults`
(what all kinds share), `writes` (from the answer to writes), `segments` and `constraints` (subgroups and topology).
With input and output: `owners` (from a pod to the workload at the top), `service` (the loop).
"""
