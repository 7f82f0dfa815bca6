"""Networks and gradient steps in native code, for small networks on a CPU.

Torch computes the same numbers, up to rounding, if there is no compiler or a network is not supported.
"""
