"""Settings that change only speed: tried here, chosen, kept, and set on later plans. See README.md."""
