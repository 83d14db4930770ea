"""What `kubectl get` prints: columns and cells of kinds, and the Table made of them."""
