"""Who a client is, and what it may do: principals, access control lists, and the authorizer that applies them."""
