"""Training steps and single inferences of small networks, the same in miniml and in its peers.

`problems` has the weights and data, `in_miniml`, `in_torch` and `in_jax` the networks as functions
of them, `worker` the process that times one library, `turns` the run that compares them.
"""
