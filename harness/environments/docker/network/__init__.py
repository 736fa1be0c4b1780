"""Link faults between containers: packet rules, netem, bad streams, and outside interference."""
