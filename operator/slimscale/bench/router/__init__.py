"""What a policy costs the router: time of a decision, CPU of a request, requests a second."""
