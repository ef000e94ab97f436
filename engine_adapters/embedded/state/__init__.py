"""Auxiliary state of hybrid models: what their recurrent and convolution layers keep of a sequence, beside its KV."""
