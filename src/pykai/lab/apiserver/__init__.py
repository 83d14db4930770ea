"""An API server that behaves like Kubernetes', in one process, for demos, tests and simulations."""
