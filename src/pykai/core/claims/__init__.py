"""Dynamic resource allocation: which devices a claim gets on a node (gpu:11).

Everything here is a function of objects.  `inventory` turns ResourceSlices into columns, `asks` turns claim specs into
small values that compare, `selectors` evaluates CEL, `allocator` searches one node, `feasible` asks many nodes at once,
`counting` tells what a claim costs a queue, `extended` turns extended resources of containers into device requests.
Who holds which device is told by the caller: a column `taken`, one entry a device.
"""
