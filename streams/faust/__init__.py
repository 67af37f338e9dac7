"""The wall: whatever touches private parts of Faust or aiokafka stands here."""
