"""The front door: gives every request a pod, a width and a batch cap."""
