"""Fair shares and quotas of queues, and what queues hold."""
