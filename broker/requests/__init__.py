"""Requests inside the broker, and the faults that tests inject into them."""
