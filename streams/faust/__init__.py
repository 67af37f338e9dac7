"""The wall: only code in this folder touches private parts of Faust or aiokafka."""
