"""The exporter of NUMA placements: what the kubelet of a node gave its pods, as annotations of the pods."""
