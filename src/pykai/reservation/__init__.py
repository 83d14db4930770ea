"""The program in reservation pods: finds the GPU that its container was given, and writes it down."""
