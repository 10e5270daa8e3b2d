"""How to ask: command line, client libraries, load test client."""
