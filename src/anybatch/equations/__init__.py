"""The mathematics, as pure functions on tensors and floats. No config, device or network here."""
