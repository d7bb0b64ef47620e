"""tfrecords_tools."""
