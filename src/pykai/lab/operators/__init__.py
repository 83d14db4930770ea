"""Operators of AI workloads, as far as users of a simulated cluster see them: Kubeflow, Ray, JobSet and others.

A cluster that trains models has these operators installed; the lab plays them. `families` is the table of what can be
chosen, `definitions` makes the CustomResourceDefinitions, `operator` runs the loop. Each other module is a kind: a pure
function from an object and what exists of it to the next step.
"""
