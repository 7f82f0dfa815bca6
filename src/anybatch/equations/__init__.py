"""The mathematics, as pure functions on tensors and floats, without configs, devices or networks."""
