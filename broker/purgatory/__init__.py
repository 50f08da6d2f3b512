"""Requests that can not be answered yet, waiting until they can or until their time is over."""
