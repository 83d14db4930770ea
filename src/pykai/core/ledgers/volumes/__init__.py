"""Which pod gets which persistent volume."""
