"""The status of PodGroups: what their pods ask for and hold, and how far each group has come.

`usage` reads a pod, `tally` adds up a group, `status` says what should stand in the object, `service` writes it.
"""
