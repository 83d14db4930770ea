"""An API server of Kubernetes' manners in one process, for demos, tests and simulations."""
