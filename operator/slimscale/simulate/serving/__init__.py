"""The data plane in simulated time: pools of pods with greedy batching behind the real policies.

The routing policy, the queues of a pod, its learnt batch times and the scaling decisions are the very
code that runs in the cluster; arrivals, service times, starts of pods and of nodes are simulated.
"""
