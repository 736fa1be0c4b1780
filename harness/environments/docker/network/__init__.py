"""Link faults between containers, and the watch for other programs that change their links."""
