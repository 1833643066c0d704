"""Samples: batches of any shape, what is held out, mixup, augmentation."""
