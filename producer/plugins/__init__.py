"""What users plug into a producer: serializers, partitioners, interceptors, metrics reporters."""
