"""`make demo-inference`: one SlimInference under recorded traffic, a pod killed on the way."""
