"""Who deserves how much: the queue forest as columns (`tree`) and the division among siblings (`waterfill`)."""
