"""The wire schema and the code that protoc generates from it. Cores and the database use no types of protobuf."""
