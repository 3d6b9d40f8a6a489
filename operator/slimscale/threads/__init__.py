"""How many threads, and how much CPU: queueing models, prediction and choice. Pure."""
