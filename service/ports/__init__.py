"""What is at the other side of the service's ports: opening it, whatever can go wrong with that, and letting go of it.

A port is a room here, which opens it (``shm.queues.Source``), and a room ``kernels/port_<kind>``, through which packets go.
"""
