"""Engine builds: from an index to a model that is served."""
