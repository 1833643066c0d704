"""All that touches a torch module: weights, losses, gradients, layer inputs, zeros, memory."""
