"""Scripts that run as processes of their own, by path: they import nothing of this product."""
