"""The wire schema and the code that protoc makes of it. Types of protobuf stay below `clients` and `server`."""
