"""What should be in a cluster, as one pure function of Config, SchedulingShards and facts about the cluster."""
