"""What is asked: marking regions, choosing their nodes, and cutting graphs along them."""
