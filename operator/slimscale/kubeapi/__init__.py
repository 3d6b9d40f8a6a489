"""The one door to the Kubernetes API: plain JSON in and out, time-outs, errors translated."""
