"""Load from inside the cluster: requests at planned times, every answer checked, every end recorded."""
