"""The arms, drawn: in the browser, and in recordings."""
