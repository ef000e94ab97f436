"""A small inference engine of our own: Transformers' models over the paged pool of cache_core."""
