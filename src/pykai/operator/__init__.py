"""What is installed into a cluster for PyKAI to run there."""
