"""Who a client is: users, and the broker's side of SASL."""
