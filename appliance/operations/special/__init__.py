"""What a model is started with beyond its own weights: adapters and a draft model. See README.md."""
