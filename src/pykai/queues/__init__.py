"""The status of queues: their children, what their workloads request and hold, and what is wrong with them.

`forest` sums up, `status` computes the status, `gauges` exports metrics, `service` writes.
"""
