"""The node scale adjuster: lets a cluster autoscaler see what shares of GPUs need (docs/nodescale.md)."""
