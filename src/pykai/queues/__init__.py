"""The status of queues: their children, what their workloads ask for and hold, and what is wrong with them.

`forest` adds up, `status` says what should stand in the object, `gauges` tells Prometheus, `service` writes.
"""
