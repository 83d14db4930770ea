"""What users see of decisions: events, conditions, annotations, and only when something changed."""
