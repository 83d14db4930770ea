"""The status of PodGroups: what their pods request and hold, and how far each group has come.

`podusage` reads a pod, `groupusage` sums up a group, `status` computes the status, `service` writes it.
"""
