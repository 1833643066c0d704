"""Layer after layer, in the order of the forward pass, each by the moments of its inputs: for networks of any size."""
