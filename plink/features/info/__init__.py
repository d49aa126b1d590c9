"""What a bug report needs to know of a machine."""
