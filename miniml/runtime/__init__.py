"""When operations are computed: at once, or as compiled programs."""
