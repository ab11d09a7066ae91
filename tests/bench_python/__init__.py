"""The Python client measured against floors, against its own Rust client, and against Kafka's clients."""
