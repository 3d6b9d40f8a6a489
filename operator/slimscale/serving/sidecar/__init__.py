"""Beside the model server in every pod: queues, greedy batches, instances, drain."""
