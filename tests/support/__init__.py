"""The product-side fakes and helpers that several tests use."""
